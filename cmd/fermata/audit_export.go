package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/auth/signin"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

// auditExport is one export: its destination and its position.
type auditExport struct {
	app    *app
	name   string // "": nothing is acknowledged
	file   string
	post   string
	header string // file with a header line for post
	follow bool

	after string // id of the last record that was delivered
	seq   int64  // its sequence, or of the last one that is reported as missing; negative: not known
	sink  auditSink

	delivered int64 // sequence of the last record that was delivered
	// fileEnd is the last record of the file, if that is beyond the position, until it was read again.
	fileEnd *client.AuditRecord

	position *client.AuditExport // that the cluster has; nil: without a name
	unstored *client.AuditRecord // the last record that was delivered and is not acknowledged
	missing  int64               // records
}

// auditSink takes records. When it returns, they are safe.
type auditSink interface {
	writeLines(ctx context.Context, lines []byte) error
	closeSink() error
}

func (a *app) auditExportCommand() *cobra.Command {
	e := auditExport{app: a}
	cmd := &cobra.Command{
		Use: "export", Short: "Deliver audit records, oldest first, and acknowledge them", Args: noArgs,
		Long: "Write audit records as JSON lines, oldest first, to standard output, to a file, or by POST to an " +
			"HTTPS endpoint. With\n" +
			"--name the cluster stores the position of the export: the next call continues there, and records that " +
			"it\n" +
			"has not acknowledged are kept beyond the limits of count and age. A record is acknowledged once it is " +
			"written and\n" +
			"synced, or the endpoint has answered 2xx; after a crash some are repeated (compare \"id\"). Records " +
			"removed before they were\n" +
			"delivered, or that the end of --file shows to be skipped, are reported on standard error; the exit code is " +
			"then 1. Run\n" +
			"one process for each name, always as the same identity.",
		Example: `  fermata audit export > audit.jsonl
  fermata audit export --follow --name siem --file /var/log/fermata/audit.jsonl
  fermata audit export --follow --name siem --post https://siem.example.org/ingest --post-header-file siem.header`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := e.openSink(); err != nil {
				return err
			}
			return errors.Join(a.withClient(cmd.Context(),
				func(c *client.Client) error { return e.exportRecords(cmd.Context(), c) }), e.sink.closeSink())
		},
	}
	f := cmd.Flags()
	f.StringVar(&e.name, "name", "", "name of the export, under which the cluster remembers how far it has come "+
		"(default: everything from the oldest record on, nothing is acknowledged)")
	f.StringVar(&e.file, "file", "", "append to this file, in place of standard output")
	f.StringVar(&e.post, "post", "", "send up to 1000 lines at once to this URL: https, or http on loopback")
	f.StringVar(&e.header, "post-header-file", "",
		"file with a header for --post, such as \"Authorization: Bearer TOKEN\"")
	f.BoolVar(&e.follow, "follow", false, "continue with new records, until interrupted")
	return cmd
}

func (a *app) auditExportsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "exports", Short: "Show the positions of the exports of audit records", Args: noArgs,
		RunE: printFetchedList(a, a.exportsTable, func(ctx context.Context, c *client.Client) ([]*client.AuditExport, error) {
			return c.Admin().AuditExports(ctx)
		}),
	}
	cmd.AddCommand(&cobra.Command{
		Use: "delete NAME", Short: "Delete an export: records are no longer kept for it", Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSession(cmd, func(ctx context.Context, c *client.Client) error {
				if err := c.Admin().DeleteAuditExport(ctx, args[0]); err != nil {
					return err
				}
				return a.printResult("deleted export "+printableText(args[0]), resultFact{"name", args[0]})
			})
		},
	})
	return registerList(a, cmd, a.exportsTable)
}

func (a *app) exportsTable(exports []*client.AuditExport) outputTable {
	t := outputTable{heading: []string{"NAME", "SEQUENCE", "ACKNOWLEDGED", "WAITING", "SINCE"}, empty: "no exports",
		leadingColumns: []string{"SEQUENCE", "SINCE"}}
	for _, e := range exports {
		since := noValue
		if e.GetWaitingSince() != nil {
			since = e.GetWaitingSince().AsTime().UTC().Format(time.RFC3339)
		}
		t.addRow(nameText(e.GetName()), fmt.Sprint(e.GetSequence()),
			e.GetUpdateTime().AsTime().UTC().Format(time.RFC3339), fmt.Sprint(e.GetWaiting()), since)
	}
	return t
}

// openSink validates the flags and opens the sink.
func (e *auditExport) openSink() (err error) {
	switch {
	case e.file != "" && e.post != "":
		return usageErrorf("--file and --post exclude each other")
	case e.header != "" && e.post == "":
		return usageErrorf("--post-header-file needs --post")
	case e.post != "":
		e.sink, err = newPostSink(e.post, e.header)
	case e.file != "":
		var file *os.File
		file, err = os.OpenFile(e.file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err == nil {
			e.sink = &fileSink{file}
		}
	default:
		e.sink = writerSink{e.app.out}
	}
	if err != nil {
		return newUsageError(err)
	}
	return nil
}

// exportRecords delivers records, and fails if some were missing.
func (e *auditExport) exportRecords(ctx context.Context, c *client.Client) error {
	err := e.beginExport(ctx, c)
	e.delivered = e.seq
	if err == nil {
		err = e.deliverRecords(ctx, c)
	}
	if e.missing > 0 {
		lost := &codedError{fmt.Errorf("%s missing", countText(int(e.missing), "record is", "records are")), exitFailed, ""}
		err = errors.Join(err, lost)
	}
	return err
}

// deliverRecords delivers until there is nothing more, or with --follow until it is interrupted. Calls that
// fail for want of a node are repeated when it follows.
func (e *auditExport) deliverRecords(ctx context.Context, c *client.Client) error {
	for {
		more, err := e.exportBatch(ctx, c)
		switch {
		case e.follow && ctx.Err() != nil:
			return nil
		case err != nil:
			if code, _ := classifyError(err); !e.follow || code != exitUnavailable {
				return err
			}
			fmt.Fprintln(e.app.err, "will try again:", printableText(err.Error()))
		case more:
			continue
		case !e.follow:
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followInterval):
		}
	}
}

// beginExport determines where to continue.
func (e *auditExport) beginExport(ctx context.Context, c *client.Client) error {
	if e.name == "" {
		e.seq = -1
		return e.repairFile()
	}
	ctx, cancel := context.WithTimeout(ctx, e.app.timeout)
	defer cancel()
	state, err := c.Admin().AcknowledgeAuditRecords(ctx, e.name, nil)
	if err != nil {
		return err
	}
	e.position, e.after, e.seq = state, state.GetRecordId(), state.GetSequence()
	return e.compareFile()
}

// compareFile goes back to the end of the file if that is before the position: whoever moved the position has not
// delivered the records between them here. If the export has no position, because somebody deleted it, it continues
// after the file. If the file ends after the position, the last delivery was not acknowledged, or Redis was set back.
func (e *auditExport) compareFile() error {
	if e.file == "" {
		return nil
	}
	last, err := readLastRecord(e.file)
	if err != nil || last == nil {
		return err
	}
	order := job.CompareTrailIDs(last.GetId(), e.after)
	switch {
	case e.after == "":
		e.after, e.seq = last.GetId(), last.GetSequence()
		return nil
	case order > 0:
		e.fileEnd = last
		return nil
	case order == 0:
		return nil
	}
	fmt.Fprintf(e.app.err, "%s ends with sequence %d, but up to %d was acknowledged: continuing after the end of the "+
		"file\n", printableText(e.file), last.GetSequence(), e.seq)
	e.after, e.seq = last.GetId(), last.GetSequence()
	return nil
}

// repairFile removes a last line without an end.
func (e *auditExport) repairFile() error {
	if e.file == "" {
		return nil
	}
	_, err := readLastRecord(e.file)
	return err
}

// exportBatch delivers and acknowledges a page; more: there may be another one.
func (e *auditExport) exportBatch(ctx context.Context, c *client.Client) (more bool, err error) {
	// What is being delivered is delivered, also after Ctrl-C.
	safe, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.app.timeout)
	defer cancel()
	if err := e.acknowledge(safe, c); err != nil {
		return false, err
	}
	bounded, cancel := context.WithTimeout(ctx, e.app.timeout)
	defer cancel()
	records, head, err := c.Admin().ReadAuditRecords(bounded, e.after)
	if err != nil {
		return false, err
	}
	if len(records) == 0 {
		// The cluster has none after those that were delivered; the position may be beyond them.
		e.printGap(e.position.GetSequence() + 1)
		e.printMissingEnd(head)
		return false, nil
	}
	var lines bytes.Buffer
	before := e.delivered
	for _, r := range records {
		if seq := r.GetSequence(); seq > 0 {
			before = e.passFileEnd(r, before)
			e.printGap(seq)
			e.printSetBack(before, seq)
			e.seq, before = seq, seq
		}
		if err := writeLine(&lines, r); err != nil {
			return false, err
		}
	}
	safe, cancel = context.WithTimeout(context.WithoutCancel(ctx), e.app.timeout)
	defer cancel()
	if err := e.sink.writeLines(safe, lines.Bytes()); err != nil {
		return false, err
	}
	last := records[len(records)-1]
	e.after, e.unstored, e.delivered = last.GetId(), last, before
	more = len(records) == client.AuditPage
	if !more {
		e.printMissingEnd(head)
	}
	return more, e.acknowledge(safe, c)
}

// acknowledge stores the position of what was delivered, unless the one that the cluster has is beyond it. After a
// failure it has to be repeated before more is delivered: an acknowledgement is about what follows the position.
func (e *auditExport) acknowledge(ctx context.Context, c *client.Client) error {
	if e.position == nil || e.unstored == nil {
		return nil
	}
	if job.CompareTrailIDs(e.unstored.GetId(), e.position.GetRecordId()) > 0 {
		position, err := c.Admin().AdvanceAuditExport(ctx, e.position, e.unstored)
		if err != nil {
			return err
		}
		if position.GetRecordId() != e.unstored.GetId() {
			return &codedError{fmt.Errorf("another process acknowledged records up to sequence %d, and this one "+
				"has delivered them up to %d only: run one process for each name", position.GetSequence(), e.seq), exitFailed, ""}
		}
		e.position = position
	}
	e.unstored = nil
	return nil
}

// printGap prints which records before a sequence are not there to be delivered.
func (e *auditExport) printGap(seq int64) {
	if e.seq < 0 || seq <= e.seq+1 {
		return
	}
	fmt.Fprintf(e.app.err, "GAP: records with sequences %d to %d are missing\n", e.seq+1, seq-1)
	e.missing += seq - e.seq - 1
	e.seq = seq - 1
}

// printSetBack prints that a later record has no higher sequence: records were written again after Redis lost them.
func (e *auditExport) printSetBack(before, seq int64) {
	if before >= seq {
		fmt.Fprintf(e.app.err, "GAP: sequence %d is followed by %d: Redis has lost records\n", before, seq)
		e.missing++
	}
}

// passFileEnd returns the sequence that a record has to exceed: that of the record before, or of the end of the file if
// the record is after it. Records up to there are read again, and are the same.
func (e *auditExport) passFileEnd(r *client.AuditRecord, before int64) int64 {
	if e.fileEnd == nil {
		return before
	}
	end, order := e.fileEnd, job.CompareTrailIDs(r.GetId(), e.fileEnd.GetId())
	if order < 0 {
		return before
	}
	e.fileEnd = nil
	switch {
	case order > 0:
		e.seq = max(e.seq, end.GetSequence())
		return end.GetSequence()
	case !bytes.Equal(r.GetHash(), end.GetHash()):
		fmt.Fprintf(e.app.err, "GAP: %s ends with another record %s of sequence %d than Redis has\n",
			printableText(e.file), printableText(end.GetId()), end.GetSequence())
		e.missing++
	}
	return before
}

// printMissingEnd prints that the chain, whose end was read, ends before the file.
func (e *auditExport) printMissingEnd(head int64) {
	if e.fileEnd == nil || head >= e.fileEnd.GetSequence() {
		return
	}
	fmt.Fprintf(e.app.err, "GAP: %s ends with sequence %d, and Redis with %d: Redis has lost records\n",
		printableText(e.file), e.fileEnd.GetSequence(), head)
	e.missing++
	e.delivered, e.fileEnd = e.fileEnd.GetSequence(), nil
}

// readLastRecord returns the last record of a file of records; nil: it has none. A line that has no end was never
// acknowledged and is removed, because the same record follows.
func readLastRecord(path string) (*client.AuditRecord, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	begin := max(0, info.Size()-maxRecordLine)
	text, err := io.ReadAll(io.NewSectionReader(file, begin, info.Size()-begin))
	if err != nil {
		return nil, err
	}
	whole := text[:bytes.LastIndexByte(text, '\n')+1]
	line := bytes.TrimSuffix(whole, []byte("\n"))
	line = line[bytes.LastIndexByte(line, '\n')+1:]
	last := &client.AuditRecord{}
	laterFields := protojson.UnmarshalOptions{DiscardUnknown: true}
	isRecord := len(line) == 0 || laterFields.Unmarshal(line, last) == nil && last.GetId() != ""
	rest := string(text[len(whole):])
	if !isRecord || !strings.HasPrefix(rest, recordStart) && !strings.HasPrefix(recordStart, rest) {
		return nil, usageErrorf("--file: the last line of %s is no audit record", path)
	}
	if rest != "" {
		err = file.Truncate(begin + int64(len(whole)))
	}
	if len(line) == 0 {
		return nil, err
	}
	return last, err
}

// recordStart is how each line begins.
const recordStart = `{"id":"`

// maxRecordLine is more than a record has as a line: 52 texts of 256 bytes. A byte takes up to six in JSON.
const maxRecordLine = 256 << 10

// writerSink writes to standard output; its reader must be fast and reliable.
type writerSink struct{ io.Writer }

func (s writerSink) writeLines(_ context.Context, lines []byte) error {
	_, err := s.Write(lines)
	return err
}

func (writerSink) closeSink() error { return nil }

type fileSink struct{ *os.File }

func (s *fileSink) writeLines(_ context.Context, lines []byte) error {
	_, err := s.Write(lines)
	return errors.Join(err, s.Sync())
}

func (s *fileSink) closeSink() error { return s.Close() }

// postSink sends lines to an endpoint.
type postSink struct {
	url    string
	header [2]string
	client *http.Client
}

func newPostSink(url, headerFile string) (*postSink, error) {
	s := &postSink{url: url, client: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if err := signin.CheckURL(url); err != nil {
		return nil, fmt.Errorf("--post: %w", err)
	}
	if headerFile == "" {
		return s, nil
	}
	text, err := secretfile.Read(headerFile, maxFlagFile)
	if err != nil {
		return nil, err
	}
	name, value, found := strings.Cut(strings.TrimSpace(string(text)), ":")
	if !found || strings.ContainsAny(value, "\r\n") {
		return nil, fmt.Errorf("%s: want one line NAME: VALUE", headerFile)
	}
	s.header = [2]string{strings.TrimSpace(name), strings.TrimSpace(value)}
	return s, nil
}

func (s *postSink) writeLines(ctx context.Context, lines []byte) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(lines))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/x-ndjson")
	if s.header[0] != "" {
		q.Header.Set(s.header[0], s.header[1])
	}
	r, err := s.client.Do(q)
	if err != nil {
		return &codedError{fmt.Errorf("--post: %w", err), exitUnavailable, ""}
	}
	defer r.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(bufio.NewReader(r.Body), 64<<10)); err != nil {
		return &codedError{fmt.Errorf("--post: %w", err), exitUnavailable, ""}
	}
	if r.StatusCode < 200 || r.StatusCode > 299 {
		// Whatever is wrong there may be put right: nothing is acknowledged meanwhile.
		return &codedError{fmt.Errorf("--post: the endpoint answers %s", r.Status), exitUnavailable, ""}
	}
	return nil
}

func (s *postSink) closeSink() error {
	s.client.CloseIdleConnections()
	return nil
}
