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

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/auth/signin"
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
	seq   int64
	sink  auditSink
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
			"delivered are reported on standard error. Run one process for each name.",
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

// exportRecords delivers until there is nothing more, or with --follow until it is interrupted. Calls that
// fail for want of a node are repeated when it follows.
func (e *auditExport) exportRecords(ctx context.Context, c *client.Client) error {
	if err := e.beginExport(ctx, c); err != nil {
		return err
	}
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
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.app.timeout)
	defer cancel()
	state, err := c.Admin().AcknowledgeAuditRecords(ctx, e.name, nil)
	if err != nil {
		return err
	}
	e.after, e.seq = state.GetRecordId(), state.GetSequence()
	return nil
}

// exportBatch delivers and acknowledges a page; more: there may be another one.
func (e *auditExport) exportBatch(ctx context.Context, c *client.Client) (more bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, e.app.timeout)
	defer cancel()
	records, _, err := c.Admin().ReadAuditRecords(bounded, e.after)
	if err != nil || len(records) == 0 {
		return false, err
	}
	var lines bytes.Buffer
	for _, r := range records {
		e.printGap(r)
		if err := writeLine(&lines, r); err != nil {
			return false, err
		}
	}
	// What is being delivered is delivered, also after Ctrl-C.
	safe, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.app.timeout)
	defer cancel()
	if err := e.sink.writeLines(safe, lines.Bytes()); err != nil {
		return false, err
	}
	last := records[len(records)-1]
	e.after = last.GetId()
	if e.name != "" {
		if _, err := c.Admin().AcknowledgeAuditRecords(safe, e.name, last); err != nil {
			return false, err
		}
	}
	return len(records) == client.AuditPage, nil
}

// printGap prints which records were removed before they could be delivered.
func (e *auditExport) printGap(r *client.AuditRecord) {
	seq := r.GetSequence()
	if seq == 0 {
		return
	}
	if e.seq > 0 && seq > e.seq+1 {
		fmt.Fprintf(e.app.err, "GAP: records with sequences %d to %d are missing\n", e.seq+1, seq-1)
	}
	e.seq = seq
}

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
