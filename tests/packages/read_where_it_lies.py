"""Reads the tables of a recording in S3 with ClickHouse, and copies of them with Spark: both have as many requests and transactions.

read_where_it_lies.py ENDPOINT PREFIX REQUESTS FOLDER
"""

import os
import pathlib
import sys

import boto3
import chdb
from pyspark.sql import SparkSession

endpoint, prefix, requests, folder = sys.argv[1:]
keys = f"'{os.environ['AWS_ACCESS_KEY_ID']}', '{os.environ['AWS_SECRET_ACCESS_KEY']}'"


def table(name):
    return f"s3('{endpoint}/traces/{prefix}/{name}/*.parquet', {keys}, 'Parquet')"


asked = f"""SELECT uniqExact(r.id), countIf(t.xid IS NOT NULL), countIf(t.snapshot_xmax IS NULL AND t.xid IS NOT NULL)
    FROM {table("requests")} r JOIN {table("transactions")} t ON t.request = r.id"""
served, wrote, blind = map(int, str(chdb.query(asked, "CSV")).strip().split(","))
assert served == int(requests) and wrote >= served and blind == 0, (served, wrote, blind)

store = boto3.client("s3", endpoint_url=endpoint)
for entry in store.list_objects_v2(Bucket="traces", Prefix=f"{prefix}/")["Contents"]:
    if entry["Key"].endswith(".parquet"):
        copy = pathlib.Path(folder, entry["Key"].removeprefix(f"{prefix}/"))
        copy.parent.mkdir(parents=True, exist_ok=True)
        store.download_file("traces", entry["Key"], str(copy))
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
for name in ("requests", "transactions"):
    spark.read.parquet(f"{folder}/{name}").createOrReplaceTempView(name)
found = spark.sql("SELECT count(DISTINCT r.id), count(t.xid) FROM requests r JOIN transactions t ON t.request = r.id").collect()[0]
assert tuple(found) == (served, wrote), (found, served, wrote)
spark.stop()
