"""Generated from proto/fermata/v1/job_revision.proto by go test ./sdk/python -update. DO NOT EDIT."""

from google.protobuf import descriptor_pool as _descriptor_pool
from google.protobuf.internal import builder as _builder

from fermata.v1 import job_pb2 as _job_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2

DESCRIPTOR = _descriptor_pool.Default().AddSerializedFile(
    b"\x0a\x1dfermata/v1/job_revisio"
    b"n.proto\x12\x0afermata.v1\x1a\x14fer"
    b"mata/v1/job.proto\x1a\x1fgoogl"
    b"e/protobuf/timestamp.pro"
    b"to\x22\xbf\x01\x0a\x0bJobRevision\x12\x0c\x0a\x04na"
    b"me\x18\x01 \x01(\x09\x12\x10\x0a\x08revision\x18\x02 \x01"
    b"(\x03\x12\x0f\x0a\x07current\x18\x03 \x01(\x08\x12/\x0a\x0bc"
    b"reate_time\x18\x04 \x01(\x0b2\x1a.googl"
    b"e.protobuf.Timestamp\x12\x10\x0a\x08"
    b"identity\x18\x05 \x01(\x09\x12\x0e\x0a\x06method"
    b"\x18\x06 \x01(\x09\x12\x0e\x0a\x06fields\x18\x07 \x03(\x09\x12\x1c"
    b"\x0a\x03job\x18\x08 \x01(\x0b2\x0f.fermata.v1"
    b".Job\x22)\x0a\x17ListJobRevisions"
    b"Request\x12\x0e\x0a\x06parent\x18\x01 \x01(\x09\x22"
    b"F\x0a\x18ListJobRevisionsRespo"
    b"nse\x12*\x0a\x09revisions\x18\x01 \x03(\x0b2\x17"
    b".fermata.v1.JobRevision\x22"
    b"%\x0a\x15GetJobRevisionRequest"
    b"\x12\x0c\x0a\x04name\x18\x01 \x01(\x09\x22S\x0a\x17DiffJo"
    b"bRevisionsRequest\x12\x0c\x0a\x04nam"
    b"e\x18\x01 \x01(\x09\x12\x15\x0a\x0dfrom_revision"
    b"\x18\x02 \x01(\x03\x12\x13\x0a\x0bto_revision\x18\x03 "
    b"\x01(\x03\x22v\x0a\x18DiffJobRevisionsR"
    b"esponse\x12%\x0a\x04from\x18\x01 \x01(\x0b2\x17."
    b"fermata.v1.JobRevision\x12#"
    b"\x0a\x02to\x18\x02 \x01(\x0b2\x17.fermata.v1."
    b"JobRevision\x12\x0e\x0a\x06fields\x18\x03 "
    b"\x03(\x09\x22K\x0a\x19RestoreJobRevisio"
    b"nRequest\x12\x0c\x0a\x04name\x18\x01 \x01(\x09\x12\x0c"
    b"\x0a\x04etag\x18\x02 \x01(\x09\x12\x12\x0a\x0arequest_"
    b"id\x18\x03 \x01(\x09b\x06proto3"
)
_builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
_builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, "fermata.v1.job_revision_pb2", globals())
