#!/usr/bin/env bash
# Make every number in this folder again: the study on the embedded backbone, then its tables. Rerun after a kill, it
# goes on where it was; rerun when it is done, it only writes the tables. PYTHON=... for another interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
embedded=(backbone=bundled dataset=hops)

report() { # folder, tables, then what hyperes.tables needs besides
    local folder=experiments/$1 names
    read -ra names <<< "$2"
    "$python" -m hyperes.tables "${@:3}" --table "${names[@]}" --out "$folder" > /dev/null
    "$python" -m hyperes.tables --published --table "${names[@]}" > "$folder/published.md"
}

for sweep in table1 table3 table4 table12 multiseed; do
    "$python" -m hyperes "+sweep=$sweep" "${embedded[@]}"
done
"$python" -m hyperes +sweep=direction_count "${embedded[@]}" direction_count=n1,n2,n4,n7,n8 # there are eight levels
# Table 2's way of testing: the mean of four samples a problem.
"$python" -m hyperes +sweep=table2 "${embedded[@]}" test.samples=4 test.temperature=0.6 test.top_p=0.95

# Table 10's rows of one direction alone are not known before there are directions: the table prints their commands.
mkdir -p multirun/alone
"$python" -m hyperes.tables multirun/{table1,table3,alone} --table 10 | sed -n 's/^- .*: missing\. `python -m \(.*\)`$/\1/p' |
    while IFS= read -r row; do
        eval "$python -m $row" "'hydra.run.dir=multirun/alone/\${name}'" < /dev/null
    done

report table1 "1 9" multirun/table1
report table2 2 multirun/table2
report table3 "3 10" multirun/{table1,table3,alone}
report table4 4 multirun/table{1,3,4} --figures
report table12 12 multirun/table12
report multiseed 11 multirun/multiseed
report direction_count N multirun/direction_count
"$python" -m hyperes.tables --published --table 13 > experiments/table13/published.md
