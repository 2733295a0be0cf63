#!/usr/bin/env python3
"""Writes expected/NAME.csv from every make/NAME.sql, with DuckDB. Run it in the folder that holds make/.

  pip install duckdb tzdata           (the files here were made with duckdb 2.0.1)
"""
import glob
import os

import duckdb

for path in sorted(glob.glob("make/*.sql")):
    name = os.path.basename(path)[:-4]
    with open(path, encoding="utf-8") as f:
        sql = f.read()
    db = duckdb.connect()
    db.execute("SET threads = 1")         # row_number() must number the lines as they stand
    db.execute("SET TimeZone = 'UTC'")
    rows = db.execute("COPY (\n%s\n) TO 'expected/%s.csv' (HEADER, DELIMITER ',')" % (sql, name)).fetchone()[0]
    print("%-32s %6d rows" % (name, rows))
