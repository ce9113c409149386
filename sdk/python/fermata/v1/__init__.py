"""Generated from proto/fermata/v1 by go test ./sdk/python -update. DO NOT EDIT."""

from fermata.v1.bulk_pb2 import *  # noqa: F403
from fermata.v1.forecast_pb2 import *  # noqa: F403
from fermata.v1.limits_pb2 import *  # noqa: F403
from fermata.v1.job_pb2 import *  # noqa: F403
from fermata.v1.job_revision_pb2 import *  # noqa: F403
from fermata.v1.access_service_pb2 import *  # noqa: F403
from fermata.v1.backup_service_pb2 import *  # noqa: F403
from fermata.v1.cluster_service_pb2 import *  # noqa: F403
from fermata.v1.event_service_pb2 import *  # noqa: F403
from fermata.v1.job_service_pb2 import *  # noqa: F403
from fermata.v1.worker_service_pb2 import *  # noqa: F403
