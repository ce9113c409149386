package rpc

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/api/apierror"
	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/job"
)

// AuditTrail keeps records of the calls that change something. A server without one
// writes log lines only.
type AuditTrail interface {
	// Reserve takes a place for the record that a call may leave, of the share of a holder. It waits for a while.
	// Without an error, Record or Release follows.
	Reserve(ctx context.Context, holder string) (job.TrailPlace, error)
	// Record takes a record, in the place of its call. It must not block.
	Record(job.TrailRecord, job.TrailPlace)
	// Release gives back the place of a call that leaves no record.
	Release(job.TrailPlace)
	// List returns up to size records, newest first.
	List(ctx context.Context, f job.TrailFilter, size int, token string) (job.TrailPage, error)
	// Read returns up to size records after one, oldest first, and where the chain ends.
	Read(ctx context.Context, after string, size int) (job.TrailPart, error)
	// Acknowledge opens an export, or stores its progress. notes are the fields of the record that this has to leave;
	// nil: none. With an error, the change that they are about may be stored.
	Acknowledge(ctx context.Context, a job.TrailAcknowledgement) (e job.TrailExport, notes []string, err error)
	Exports(ctx context.Context) ([]job.TrailExport, error)
	DeleteExport(ctx context.Context, export string) error
}

// auditInterceptor logs and records each call that changes something, after the call has ended.
type auditInterceptor struct {
	trail  AuditTrail
	jobs   JobDefinitions
	node   string
	logger *slog.Logger
	// subject names the caller of a context.
	subject func(context.Context) string
}

// unchangedCodes are the codes of calls that have changed nothing, unless [NoteStored] noted a change. Such calls are
// logged and not recorded, and so are other calls that failed before they began to write: failing calls cannot displace
// records.
var unchangedCodes = map[codes.Code]bool{
	codes.InvalidArgument: true, codes.NotFound: true, codes.AlreadyExists: true, codes.PermissionDenied: true,
	codes.Unauthenticated: true, codes.ResourceExhausted: true, codes.FailedPrecondition: true, codes.Aborted: true,
	codes.OutOfRange: true, codes.Unimplemented: true,
}

func (a *auditInterceptor) interceptUnary(ctx context.Context, q any,
	info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any, err error) {
	row, known := auditRules[info.FullMethod]
	request, ok := q.(proto.Message)
	if !known || !ok || row.readsOnly != nil && row.readsOnly(request) {
		return next(ctx, q)
	}
	note := &auditNote{subject: a.subject(ctx), peer: guard.PeerAddress(ctx)}
	ended := false
	defer func() {
		code := codes.Internal // of a panic
		if ended {
			st, _ := apierror.ToStatus(err)
			code = st.Code()
		}
		a.recordCall(ctx, info.FullMethod, row, request, answer, note, code)
	}()
	if a.trail != nil {
		if note.place, err = a.trail.Reserve(ctx, note.holder()); err != nil {
			ended = true
			return nil, err
		}
		if row.jobName != nil {
			note.before = a.digestBefore(ctx, row, request)
		}
	}
	answer, err = next(context.WithValue(ctx, auditKey{}, note), q)
	ended = true
	return answer, err
}

// holder is whose share of the places for records a call takes: the host's where callers are not authenticated.
func (n *auditNote) holder() string {
	if n.subject != anonymous {
		return n.subject
	}
	host, _, err := net.SplitHostPort(n.peer)
	if err != nil {
		return anonymous
	}
	return host
}

// digestTimeout bounds the look at a job before a call. The call does not depend on it.
const digestTimeout = 250 * time.Millisecond

// digestBefore is the digest of a job before the call.
func (a *auditInterceptor) digestBefore(ctx context.Context, row auditRule, q proto.Message) []byte {
	key, err := convert.ParseJobName("name", row.jobName(q))
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, digestTimeout)
	defer cancel()
	record, err := a.jobs.Get(ctx, key)
	if err != nil {
		return nil // the call itself fails in the same way
	}
	return row.digest(convert.RecordToPB(record, 0))
}

// anonymous is who makes a call where callers are not authenticated.
const anonymous = "anonymous"

// callerSubject is the subject of the caller's identity.
func callerSubject(ctx context.Context) string {
	if id, ok := guard.IdentityFrom(ctx); ok {
		return id.Subject
	}
	return anonymous
}

func (a *auditInterceptor) recordCall(ctx context.Context, method string, row auditRule,
	q proto.Message, answer any, note *auditNote, code codes.Code) {
	if a.trail != nil {
		defer func() { a.trail.Release(note.place) }()
	}
	r := job.TrailRecord{
		Identity: note.subject, Peer: note.peer, Node: a.node, Method: strings.TrimPrefix(method, "/"),
		Code: int(code), Before: note.before,
	}
	if rid, ok := q.(interface{ GetRequestId() string }); ok {
		r.RequestID = rid.GetRequestId()
	}
	a2, _ := answer.(proto.Message)
	if code != codes.OK {
		a2 = nil
	}
	row.fill(&r, q, a2)
	if note.fields != nil {
		r.Fields = note.fields
	}
	r.Fields = append(r.Fields, auditOptions(q, row.options)...)
	changed, changes := note.changedTargets()
	if code != codes.OK {
		r.Changed = max(r.Changed, changes)
	}
	if row.changedName != nil {
		names := convert.WithoutRepeats(append(convert.Map(changed, row.changedName), r.Names...))
		r.Names = job.ClipList(names, int(r.Changed), job.MaxTrailNames)
	}
	r = r.Clipped()
	began, stored := note.finishCall(), note.stored.Load()
	unchanged := unchangedCodes[code] || note.unchanged.Load()
	failed := unchanged || code != codes.OK || r.Changed == 0 && r.Refused > 0
	mayHaveChanged := !failed || began && (stored || !unchanged)
	if a.trail != nil && !note.repetition.Load() && !note.routine.Load() && mayHaveChanged {
		a.trail.Record(r, note.place)
		note.place = job.TrailPlace{}
	}
	attributes := []any{
		"who", r.Identity, "peer", r.Peer, "method", r.Method, "resource", r.Resource, "code", code.String(),
	}
	if r.RequestID != "" {
		attributes = append(attributes, "request", r.RequestID)
	}
	if r.Changed+r.Refused > 0 {
		attributes = append(attributes, "changed", r.Changed, "refused", r.Refused)
	}
	if len(r.Names) > 0 {
		attributes = append(attributes, "names", r.Names)
	}
	if len(r.Fields) > 0 {
		attributes = append(attributes, "fields", r.Fields)
	}
	a.logger.InfoContext(ctx, "audit", attributes...)
}

// auditNote is what a handler adds to the record of its call.
type auditNote struct {
	subject, peer string
	place         job.TrailPlace // zero: none, or no longer

	before []byte
	fields []string // that were changed, in place of those that the request names; nil: unknown
	phase  atomic.Int32
	// stored: something was stored for the call, or may be, whatever its error is.
	stored atomic.Bool
	// changes counts what the call changed, and changed has the first of them.
	mu      sync.Mutex
	changes int64
	changed []job.BulkTarget
	// repetition: the call was answered with the stored result of an earlier one.
	repetition atomic.Bool
	// routine: the call is only logged.
	routine atomic.Bool
	// unchanged: the call succeeds because there was nothing to change.
	unchanged atomic.Bool
}

// noteUnchanged has a call that succeeds because there was nothing to change leave no record, unless [NoteStored] noted
// a change.
func noteUnchanged(ctx context.Context) {
	if note, ok := ctx.Value(auditKey{}).(*auditNote); ok {
		note.unchanged.Store(true)
	}
}

// noteExport adds what a call changed of an export to its record. Without notes it leaves none: a record of each
// acknowledgement would have to be acknowledged in its turn.
func noteExport(ctx context.Context, notes []string) {
	if note, ok := ctx.Value(auditKey{}).(*auditNote); ok {
		note.fields = notes
		note.routine.Store(len(notes) == 0)
	}
}

// noteRepetition has a call that was answered with the stored result of an earlier one leave no record.
func noteRepetition(ctx context.Context, repetition bool) {
	if note, ok := ctx.Value(auditKey{}).(*auditNote); ok && repetition {
		note.repetition.Store(true)
	}
}

// Phases of a call. It goes from the first to one of the others, and stays there.
const (
	phaseReading int32 = iota // nothing has been written
	phaseWriting              // something is, or may be
	phaseEnded                // answered before anything was written: nothing may be
)

// BeginWrite records that a call is about to store something. It returns false if the call has ended already: then
// nothing may be stored for it, because its audit record is complete.
func BeginWrite(ctx context.Context) bool {
	note, ok := ctx.Value(auditKey{}).(*auditNote)
	return !ok || note.phase.CompareAndSwap(phaseReading, phaseWriting) || note.phase.Load() == phaseWriting
}

// NoteStored records that something was stored for a call, so that an error does not keep the call out of the trail:
// so many of the changes that its record counts; 0: something else, or it is unknown how many.
func NoteStored(ctx context.Context, changes int) {
	if note, ok := ctx.Value(auditKey{}).(*auditNote); ok {
		note.addChanges(int64(changes), nil)
	}
}

// NoteChanged records what was stored for a call, as [NoteStored] does: changes of these jobs, runs or dead letters;
// none: something else, or it is unknown which.
func NoteChanged(ctx context.Context, changed []job.BulkTarget) {
	if note, ok := ctx.Value(auditKey{}).(*auditNote); ok {
		note.addChanges(int64(len(changed)), changed)
	}
}

func (n *auditNote) addChanges(changes int64, changed []job.BulkTarget) {
	n.stored.Store(true)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changes += changes
	n.changed = append(n.changed, changed[:min(len(changed), job.MaxTrailNames-len(n.changed))]...)
}

// changedTargets returns the first of what the call changed, and how many there are.
func (n *auditNote) changedTargets() ([]job.BulkTarget, int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.changed), n.changes
}

// finishCall ends the call for [BeginWrite], and reports whether it began to write.
func (n *auditNote) finishCall() bool { return !n.phase.CompareAndSwap(phaseReading, phaseEnded) }

type auditKey struct{}

// noteEdit adds the definition that an edit replaces, and the fields that it changes. The last one counts, because an
// edit may be merged again.
func noteEdit(ctx context.Context, before, after *job.Definition) {
	if note, ok := ctx.Value(auditKey{}).(*auditNote); ok {
		present := convert.DefinitionToPB(before)
		note.before = convert.DefinitionDigest(present)
		note.fields = append([]string{}, convert.ChangedFields(present, convert.DefinitionToPB(after))...)
	}
}
