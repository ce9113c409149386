"""Generated from proto/fermata/v1/access_service.proto by go test ./sdk/python -update. DO NOT EDIT."""

from google.protobuf import descriptor_pool as _descriptor_pool
from google.protobuf.internal import builder as _builder

from google.protobuf import timestamp_pb2 as _timestamp_pb2

DESCRIPTOR = _descriptor_pool.Default().AddSerializedFile(
    b"\x0a\x1ffermata/v1/access_serv"
    b"ice.proto\x12\x0afermata.v1\x1a\x1fg"
    b"oogle/protobuf/timestamp"
    b".proto\x22\x0f\x0a\x0dWhoAmIRequest\x22"
    b"\xd2\x03\x0a\x0eWhoAmIResponse\x12\x10\x0a\x08id"
    b"entity\x18\x01 \x01(\x09\x12A\x0a\x0eauthenti"
    b"cation\x18\x02 \x01(\x0e2).fermata.v"
    b"1.WhoAmIResponse.Authent"
    b"ication\x12\x0e\x0a\x06groups\x18\x03 \x03(\x09\x12"
    b"/\x0a\x0bexpire_time\x18\x04 \x01(\x0b2\x1a.g"
    b"oogle.protobuf.Timestamp"
    b"\x12%\x0a\x06grants\x18\x05 \x03(\x0b2\x15.ferma"
    b"ta.v1.RoleGrant\x12&\x0a\x06limit"
    b"s\x18\x06 \x01(\x0b2\x16.fermata.v1.Cal"
    b"lLimits\x12/\x0a\x0anamespaces\x18\x07 "
    b"\x03(\x0b2\x1b.fermata.v1.Namespa"
    b"ceLimits\x12\x0c\x0a\x04node\x18\x08 \x01(\x09\x22\x9b"
    b"\x01\x0a\x0eAuthentication\x12\x1e\x0a\x1aAUT"
    b"HENTICATION_UNSPECIFIED\x10"
    b"\x00\x12\x17\x0a\x13AUTHENTICATION_NONE"
    b"\x10\x01\x12\x18\x0a\x14AUTHENTICATION_TOK"
    b"EN\x10\x02\x12\x1e\x0a\x1aAUTHENTICATION_C"
    b"ERTIFICATE\x10\x03\x12\x16\x0a\x12AUTHENTI"
    b"CATION_JWT\x10\x04\x22=\x0a\x09RoleGran"
    b"t\x12\x0c\x0a\x04role\x18\x01 \x01(\x09\x12\x12\x0a\x0anames"
    b"paces\x18\x02 \x03(\x09\x12\x0e\x0a\x06queues\x18\x03 "
    b"\x03(\x09\x22M\x0a\x0aCallLimits\x12\x0c\x0a\x04rat"
    b"e\x18\x01 \x01(\x01\x12\x0d\x0a\x05burst\x18\x02 \x01(\x05\x12\x0d"
    b"\x0a\x05calls\x18\x03 \x01(\x05\x12\x13\x0a\x0bconnect"
    b"ions\x18\x04 \x01(\x05\x22E\x0a\x0fNamespaceL"
    b"imits\x12\x11\x0a\x09namespace\x18\x01 \x01(\x09"
    b"\x12\x0c\x0a\x04jobs\x18\x02 \x01(\x03\x12\x11\x0a\x09job_by"
    b"tes\x18\x03 \x01(\x032P\x0a\x0dAccessServi"
    b"ce\x12?\x0a\x06WhoAmI\x12\x19.fermata.v"
    b"1.WhoAmIRequest\x1a\x1a.fermat"
    b"a.v1.WhoAmIResponseb\x06pro"
    b"to3"
)
_builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
_builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, "fermata.v1.access_service_pb2", globals())
