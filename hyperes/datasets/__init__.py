"""Every data set of the paper, in its publishers' own formats: a source is located, its rows are read one by one.

``sources`` knows where, ``rows`` how a file or a hub data set becomes rows, the other modules what one row means.
"""
