"""Serves S3 with a bucket `traces` at PORT, says so, and goes on until its input ends.

s3_server.py PORT
"""

import logging
import sys

import boto3
from moto.server import ThreadedMotoServer

port = int(sys.argv[1])
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
server.start()
boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}").create_bucket(
    Bucket="traces", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"}
)
print("serves", flush=True)
sys.stdin.read()
server.stop()
