package apierror

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/job"
)

// Domain is the domain of ErrorInfo details.
const Domain = "fermata.io"

// sentinelStatuses are the errors without fields: code, reason for programs, text for
// people, and when a repetition may help (0: it does not by itself).
var sentinelStatuses = []struct {
	err    error
	code   codes.Code
	reason string
	text   string
	retry  time.Duration
}{
	{job.ErrCorrupt, codes.DataLoss, "JOB_CORRUPT", "what is stored of the job cannot be used; edit or delete it", 0},
	{job.ErrNoMemory, codes.ResourceExhausted, "REDIS_OUT_OF_MEMORY", "Redis has reached maxmemory; nothing was stored", 0},
	{job.ErrTooManyQueuesOfNamespace, codes.ResourceExhausted, "TOO_MANY_QUEUES", "as many queues of this namespace have settings as its share is; set all limits of those to 0 that are no longer used: fermata cluster queues lists them", 0},
	{job.ErrTooManyQueuesOfIdentity, codes.ResourceExhausted, "TOO_MANY_QUEUES", "this caller has given settings to as many queues as its share is; set all limits of those to 0 that are no longer used: fermata cluster queues lists them", 0},
	{job.ErrTooManyQueues, codes.ResourceExhausted, "TOO_MANY_QUEUES", "as many queues have settings as may; the last places are for pauses; set all limits of those to 0 that are no longer used: fermata cluster queues lists them", 0},
	{job.ErrTooLarge, codes.ResourceExhausted, "TOO_LARGE", "the jobs are too large for one call; nothing was done, name fewer of them", 0},
	{job.ErrTooMuchWork, codes.ResourceExhausted, "TOO_MUCH_WORK", "the call took as much work as one may and did a part of it; repeat it with the rest, fewer at a time", 0},
	{job.ErrSettingsChanged, codes.Aborted, "SETTINGS_CHANGED", "somebody changed the settings of the queue in between", 0},
	{job.ErrTooManyWatches, codes.ResourceExhausted, "TOO_MANY_WATCHES", "as many queues are watched over this connection, at this node, or for this namespace or caller, as may be; ask for them by calls, or use more connections or nodes", 10 * time.Second},
	{job.ErrDurability, codes.Unavailable, "DURABILITY_UNCONFIRMED", "stored, but not confirmed as durable in time; repeat the call", time.Second},
	{job.ErrNodeBusy, codes.Unavailable, "NODE_BUSY", "the node did not get to the call in time, because others before it took long; repeat the call", 500 * time.Millisecond}, // is an ErrUnavailable
	{job.ErrUnavailable, codes.Unavailable, "REDIS_UNAVAILABLE", "Redis cannot be reached; repeat the call", 500 * time.Millisecond},
	{job.ErrClockJump, codes.Unavailable, "REDIS_CLOCK_JUMPED", "the clock of Redis jumped ahead; nothing was stored", 5 * time.Second},
	{job.ErrNotHolder, codes.Unavailable, "SHARD_MOVED", "the shard changed its holder; repeat the call", 100 * time.Millisecond},
	{job.ErrConflict, codes.Aborted, "CONFLICT", "the job kept changing; repeat the call", 50 * time.Millisecond},
	{job.ErrEventsOff, codes.FailedPrecondition, "EVENTS_DISABLED", "this cluster records no events: see --events-keep of the scheduler", 0},
	{job.ErrEventsGone, codes.OutOfRange, "EVENTS_GONE", "events after the resume token are no longer kept; begin anew without it", 0},
	{job.ErrTooManyWatchers, codes.ResourceExhausted, "TOO_MANY_WATCHERS", "this node has as many watchers as it takes, or as many of this caller or its namespace as their share is; try another one", time.Second},
	{job.ErrWatchersTooSlow, codes.Unavailable, "WATCHER_TOO_SLOW", "events that watchers of this caller have not read take all the memory that it may have; read them, and go on from the last token", time.Second},
	{job.ErrAuditQueueFull, codes.ResourceExhausted, "TOO_MANY_AUDIT_RECORDS", "as many audit records wait to be stored as may, or as many of this caller as its share is; nothing was changed, repeat the call", time.Second},
	{job.ErrNoTrailExport, codes.NotFound, "AUDIT_EXPORT_NOT_FOUND", "there is no such export of audit records; open it first", 0},
	{job.ErrTrailExportChanged, codes.Aborted, "AUDIT_EXPORT_CHANGED", "the export is at another position, or another identity has opened it since; open it again, and read from where it is", 0},
	{job.ErrDraining, codes.Unavailable, "NODE_DRAINING", "this node stops; connect to another one", 0},
	{context.DeadlineExceeded, codes.DeadlineExceeded, "", "the deadline of the call passed; it may have taken effect", 0},
	{context.Canceled, codes.Canceled, "", "the call was cancelled; it may have taken effect", 0},
}

// busyRetryDelay is when the id of a deleted job that still runs may be free.
const busyRetryDelay = time.Second

// turnRetryDelay is when a turn may be free that others have.
const turnRetryDelay = time.Second

// ToStatus finds the status of an error. known is false for errors that the
// table does not hold; their text must not reach the client.
func ToStatus(err error) (s *status.Status, known bool) {
	if err == nil {
		return nil, true
	}
	if s, ok := statusOfTypedError(err); ok {
		return s, true
	}
	for _, row := range sentinelStatuses {
		if !errors.Is(err, row.err) {
			continue
		}
		var details []protoadapt.MessageV1
		if row.reason != "" {
			details = append(details, &errdetails.ErrorInfo{Reason: row.reason, Domain: Domain})
		}
		if row.retry > 0 {
			details = append(details, RetryInfo(row.retry))
		}
		return WithDetails(row.code, row.text, details...), true
	}
	if s, ok := status.FromError(err); ok {
		return s, true
	}
	var network net.Error
	if errors.As(err, &network) {
		return unavailableStatus(), true
	}
	return status.New(codes.Internal, "internal error; the node's log has more"), false
}

// unavailableStatus is the status of a call for which something that the node needs, most likely
// Redis, could not be reached.
func unavailableStatus() *status.Status {
	s, _ := ToStatus(job.ErrUnavailable)
	return s
}

// partResourceTypes are the types of a job's parts by their collection.
var partResourceTypes = map[string]string{
	"backfills": "Backfill", "deadLetters": "DeadLetter", "revisions": "JobRevision",
}

func statusOfTypedError(err error) (*status.Status, bool) {
	var (
		invalid  *job.InvalidError
		missing  *job.MissingError
		exists   *job.ExistsError
		busy     *job.BusyError
		etag     *job.EtagError
		part     *job.MissingPartError
		unfit    *job.PreconditionError
		quota    *job.QuotaError
		unsorted *job.TooManyToSortError
		bulk     *job.BulkError
		turn     *job.TurnError
	)
	switch {
	case errors.As(err, &turn): // also as the cause of an InvalidError
		info := &errdetails.ErrorInfo{Reason: "LIMIT_" + strings.ToUpper(turn.Work), Domain: Domain}
		return WithDetails(codes.ResourceExhausted, turn.Error(), info, RetryInfo(turnRetryDelay)), true
	case errors.As(err, &bulk):
		return statusOfBulkError(bulk), true
	case errors.As(err, &unsorted):
		info := &errdetails.ErrorInfo{Reason: job.ReasonTooManyToSort, Domain: Domain,
			Metadata: map[string]string{"limit": strconv.Itoa(unsorted.Limit)}}
		return WithDetails(codes.FailedPrecondition, unsorted.Error(), info), true
	case errors.As(err, &invalid):
		return WithDetails(codes.InvalidArgument, invalid.Error(), BadRequest(invalid.Violations)), true
	case errors.As(err, &missing):
		info := jobResource(missing.Key, "does not exist")
		if missing.RunID != "" {
			info.ResourceType, info.ResourceName = "fermata.v1.Run", convert.RunName(missing.Key, missing.RunID)
		}
		return WithDetails(codes.NotFound, missing.Error(), info), true
	case errors.As(err, &part):
		info := &errdetails.ResourceInfo{
			ResourceType: "fermata.v1." + partResourceTypes[part.Collection],
			ResourceName: convert.JobName(part.Key) + "/" + part.Collection + "/" + part.ID,
			Description:  "does not exist",
		}
		return WithDetails(codes.NotFound, part.Error(), info), true
	case errors.As(err, &unfit):
		reason := &errdetails.ErrorInfo{Reason: unfit.Reason, Domain: Domain}
		return WithDetails(codes.FailedPrecondition, unfit.Error(), reason, jobResource(unfit.Key, unfit.Text)), true
	case errors.As(err, &exists):
		return WithDetails(codes.AlreadyExists, exists.Error(), jobResource(exists.Key, exists.Reason)), true
	case errors.As(err, &busy):
		text := "is deleted and still runs"
		if busy.Renaming {
			text = "is reserved for a rename"
		}
		return WithDetails(codes.Aborted, busy.Error(), RetryInfo(busyRetryDelay), jobResource(busy.Key, text)), true
	case errors.As(err, &quota):
		return statusOfQuotaError(quota), true
	case errors.As(err, &etag):
		reason := &errdetails.ErrorInfo{
			Reason: "ETAG_MISMATCH", Domain: Domain, Metadata: map[string]string{"etag": etag.Have},
		}
		return WithDetails(codes.Aborted, etag.Error(), reason, jobResource(etag.Key, "was edited in between")), true
	}
	return nil, false
}

func statusOfBulkError(bulk *job.BulkError) *status.Status {
	info := &errdetails.ErrorInfo{Reason: bulk.Reason, Domain: Domain, Metadata: map[string]string{
		"matched": strconv.FormatInt(bulk.Matched, 10), "confirmed": strconv.FormatInt(bulk.Confirmed, 10)}}
	code := codes.FailedPrecondition
	if bulk.Reason == job.ReasonTooManyBulkChanges {
		code = codes.ResourceExhausted
	}
	return WithDetails(code, bulk.Error(), info)
}

func statusOfQuotaError(quota *job.QuotaError) *status.Status {
	reason := &errdetails.ErrorInfo{Reason: "NAMESPACE_JOBS", Domain: Domain, Metadata: map[string]string{
		"namespace": quota.Namespace, "limit": strconv.Itoa(quota.Limit),
	}}
	if quota.Bytes {
		reason.Reason = "NAMESPACE_JOB_BYTES"
	}
	return WithDetails(codes.ResourceExhausted, quota.Error(), reason)
}

// A status is sent in the trailers of its call, its text twice and its details in base64. Clients that are built on
// gRPC core, such as those in Python and Ruby, take 8 KiB of trailers for certain. Of a call with more they see another
// error.
const (
	// maxTextBytes bounds the text of a status.
	maxTextBytes = 1024
	// maxViolationBytes bounds the violations that a status lists.
	maxViolationBytes = 1536
)

// BadRequest lists the first violations: as many as clients can receive.
func BadRequest(violations []job.Violation) *errdetails.BadRequest {
	detail := &errdetails.BadRequest{}
	bytes := 0
	for _, v := range violations {
		violation := &errdetails.BadRequest_FieldViolation{
			Field: job.Clip(v.Field, job.MaxError), Description: job.Clip(v.Description, job.MaxError),
		}
		bytes += proto.Size(violation)
		if bytes > maxViolationBytes {
			break
		}
		detail.FieldViolations = append(detail.FieldViolations, violation)
	}
	return detail
}

func jobResource(k job.Key, description string) *errdetails.ResourceInfo {
	return &errdetails.ResourceInfo{
		ResourceType: "fermata.v1.Job", ResourceName: convert.JobName(k), Description: description,
	}
}

func RetryInfo(d time.Duration) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(d)}
}

// WithDetails attaches details. Text is made valid UTF-8, which statuses must be.
func WithDetails(code codes.Code, text string, details ...protoadapt.MessageV1) *status.Status {
	const cut = "..."
	clipped := job.Clip(text, maxTextBytes)
	if len(text) > maxTextBytes {
		clipped = job.Clip(text, maxTextBytes-len(cut)) + cut
	}
	s := status.New(code, clipped)
	detailed, err := s.WithDetails(details...)
	if err != nil {
		return s
	}
	return detailed
}

// ErrStreamAged ends a stream in good order: nothing has failed.
var ErrStreamAged = Resumable("STREAM_EXPIRED", "the stream has been open for long; go on from its last token")

func Resumable(reason, text string) error {
	return WithDetails(codes.Unavailable, text, &errdetails.ErrorInfo{Reason: reason, Domain: Domain}).Err()
}
