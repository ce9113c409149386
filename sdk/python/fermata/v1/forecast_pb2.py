"""Generated from proto/fermata/v1/forecast.proto by go test ./sdk/python -update. DO NOT EDIT."""

from google.protobuf import descriptor_pool as _descriptor_pool
from google.protobuf.internal import builder as _builder

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2

DESCRIPTOR = _descriptor_pool.Default().AddSerializedFile(
    b"\x0a\x19fermata/v1/forecast.pr"
    b"oto\x12\x0afermata.v1\x1a\x1egoogle/"
    b"protobuf/duration.proto\x1a"
    b"\x1fgoogle/protobuf/timesta"
    b"mp.proto\x22\xa2\x01\x0a\x13ForecastLoa"
    b"dRequest\x12\x0e\x0a\x06parent\x18\x01 \x01(\x09"
    b"\x12\x0d\x0a\x05queue\x18\x02 \x01(\x09\x12*\x0a\x07horiz"
    b"on\x18\x03 \x01(\x0b2\x19.google.protob"
    b"uf.Duration\x12-\x0a\x0aresolutio"
    b"n\x18\x04 \x01(\x0b2\x19.google.protobu"
    b"f.Duration\x12\x11\x0a\x09herd_jobs\x18"
    b"\x05 \x01(\x03\x22\xd9\x02\x0a\x14ForecastLoadRe"
    b"sponse\x12.\x0a\x0astart_time\x18\x01 \x01"
    b"(\x0b2\x1a.google.protobuf.Tim"
    b"estamp\x12-\x0a\x0aresolution\x18\x02 \x01"
    b"(\x0b2\x19.google.protobuf.Dur"
    b"ation\x12%\x0a\x06queues\x18\x03 \x03(\x0b2\x15."
    b"fermata.v1.QueueLoad\x12\x16\x0a\x0e"
    b"omitted_queues\x18\x04 \x01(\x05\x12#\x0a\x05"
    b"herds\x18\x05 \x03(\x0b2\x14.fermata.v1"
    b".LoadHerd\x12\x16\x0a\x0emissing_sha"
    b"rds\x18\x06 \x03(\x05\x120\x0a\x0cplanned_tim"
    b"e\x18\x07 \x01(\x0b2\x1a.google.protobu"
    b"f.Timestamp\x124\x0a\x10definitio"
    b"ns_time\x18\x08 \x01(\x0b2\x1a.google.p"
    b"rotobuf.Timestamp\x22z\x0a\x09Que"
    b"ueLoad\x12\x11\x0a\x09namespace\x18\x01 \x01("
    b"\x09\x12\x0d\x0a\x05queue\x18\x02 \x01(\x09\x12\x0f\x0a\x07plan"
    b"ned\x18\x03 \x03(\x03\x12\x10\x0a\x08computed\x18\x04 "
    b"\x03(\x03\x12\x11\x0a\x09estimated\x18\x05 \x03(\x03\x12\x15"
    b"\x0a\x0djobs_left_out\x18\x06 \x01(\x03\x22\xcf\x01"
    b"\x0a\x08LoadHerd\x12\x11\x0a\x09namespace\x18"
    b"\x01 \x01(\x09\x12\x0d\x0a\x05queue\x18\x02 \x01(\x09\x12(\x0a\x04"
    b"time\x18\x03 \x01(\x0b2\x1a.google.prot"
    b"obuf.Timestamp\x12\x14\x0a\x0cwhole_"
    b"minute\x18\x04 \x01(\x08\x12\x0c\x0a\x04jobs\x18\x05 \x01"
    b"(\x03\x12\x14\x0a\x0cmovable_jobs\x18\x06 \x01(\x03"
    b"\x12\x0d\x0a\x05times\x18\x07 \x01(\x03\x12\x10\x0a\x08sched"
    b"ule\x18\x08 \x01(\x09\x12\x0f\x0a\x07job_ids\x18\x09 \x03"
    b"(\x09\x12\x0b\x0a\x03fix\x18\x0a \x01(\x09b\x06proto3"
)
_builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
_builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, "fermata.v1.forecast_pb2", globals())
