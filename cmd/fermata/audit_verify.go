package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/lib/secretfile"
)

// maxFlagFile bounds a file that a flag names for a key or a secret.
const maxFlagFile = 1 << 20

// maxShownBreaks is how many breaks verify prints; the others are counted.
const maxShownBreaks = 100

func (a *app) auditVerifyCommand() *cobra.Command {
	var path, keyPath string
	cmd := &cobra.Command{
		Use: "verify", Short: "Verify that no audit record was changed, removed or inserted", Args: noArgs,
		Long: "Follow the chain of hashes through all audit records that the cluster keeps, or through a file that " +
			"audit export\n" +
			"has written, and report where it breaks. With --public-key-file every record must be covered by a " +
			"signature: without,\n" +
			"anyone who can write to Redis may have replaced the whole chain. Exit code 1 when it breaks, or there " +
			"is no record.",
		Example: `  fermata audit verify --public-key-file audit.pub
  fermata audit verify --file audit.jsonl --public-key-file audit.pub`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			check := &job.ChainCheck{}
			if keyPath != "" {
				text, err := secretfile.Read(keyPath, maxFlagFile)
				if err == nil {
					check.Keys, err = job.ParseChainPublicKeys(string(text))
				}
				if err != nil {
					return usageErrorf("--public-key-file: %w", err)
				}
			}
			v := chainVerification{app: a, check: check}
			if path != "" {
				return v.verifyFile(path)
			}
			return a.withSession(cmd, func(ctx context.Context,
				c *client.Client) error {
				return v.verifyCluster(ctx, c)
			})
		},
	}
	cmd.Flags().StringVar(&path, "file", "", "check this file of audit export in place of the cluster's records; - "+
		"is standard input")
	cmd.Flags().StringVar(&keyPath, "public-key-file", "",
		"file with the public keys of --audit-key-file, a line \"public id base64key\" each")
	return cmd
}

// chainVerification verifies records in order and counts breaks.
type chainVerification struct {
	app    *app
	check  *job.ChainCheck
	breaks int
}

// verifyCluster verifies the records that the cluster keeps.
func (v *chainVerification) verifyCluster(ctx context.Context, c *client.Client) error {
	for after := ""; ; {
		records, head, err := c.Admin().ReadAuditRecords(ctx, after)
		if err != nil {
			return err
		}
		for _, r := range records {
			if err := v.verifyRecord(r); err != nil {
				return err
			}
			after = r.GetId()
		}
		if len(records) == client.AuditPage {
			continue
		}
		if v.check.Last.Seq < head {
			err = v.printBreak(job.ChainBreak{Seq: head,
				Detail: fmt.Sprintf("the chain goes on to sequence %d: the records after %d are missing", head,
					v.check.Last.Seq)})
		}
		return errors.Join(err, v.printSummary())
	}
}

// verifyFile reads an export, line by line.
func (v *chainVerification) verifyFile(path string) error {
	in := v.app.in
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return newUsageError(err)
		}
		defer file.Close()
		in = file
	}
	lines := bufio.NewReaderSize(in, 64<<10)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if text := bytes.TrimSpace(line); len(text) > 0 {
			if err := v.verifyLine(n, text); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return v.printSummary()
		case err != nil:
			return err
		}
	}
}

func (v *chainVerification) verifyLine(n int, text []byte) error {
	r := &client.AuditRecord{}
	if err := (protojson.UnmarshalOptions{}).Unmarshal(text, r); err != nil || r.GetId() == "" {
		return v.printBreak(job.ChainBreak{Detail: fmt.Sprintf("line %d is no audit record", n)})
	}
	return v.verifyRecord(r)
}

func (v *chainVerification) verifyRecord(r *client.AuditRecord) error {
	if b := v.check.Next(auditRecordOf(r)); b != nil {
		return v.printBreak(*b)
	}
	return nil
}

func (v *chainVerification) printBreak(b job.ChainBreak) error {
	v.breaks++
	if v.breaks > maxShownBreaks {
		return nil
	}
	where := ""
	if b.ID != "" {
		where = fmt.Sprintf("record %s (sequence %d) ", clipText(b.ID, 48), b.Seq)
	}
	return v.app.println("BROKEN: " + where + printableText(b.Detail))
}

// printSummary prints the result.
func (v *chainVerification) printSummary() error {
	if b := v.check.End(); b != nil {
		if err := v.printBreak(*b); err != nil {
			return err
		}
	}
	c := v.check
	if c.Records > 0 && c.Last.Seq > 0 {
		text := fmt.Sprintf("%d records: sequences %d to %d, %s to %s, last hash %x", c.Records, c.First.Seq,
			c.Last.Seq,
			timeText(int64(c.First.AtMS)), timeText(int64(c.Last.AtMS)), c.Last.Hash)
		if c.Unchained > 0 {
			text += fmt.Sprintf("; %d records are not part of the chain: nothing shows who wrote them", c.Unchained)
		}
		if err := v.app.println(text); err != nil {
			return err
		}
	}
	switch {
	case v.breaks > 0:
		return &codedError{fmt.Errorf("the chain is broken in %s", countText(v.breaks, "place", "places")),
			exitFailed, ""}
	case c.Last.Seq == 0:
		return &codedError{errors.New("there is no record that is part of a chain"), exitFailed, ""}
	case c.Keys == nil:
		return v.app.println("the chain holds; its signatures were not checked: --public-key-file")
	}
	return v.app.println("the chain holds, and signatures cover all of it")
}

func timeText(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// auditRecordOf returns a record in its hashed form. A time with fractions of a millisecond, which no node writes, is 0.
func auditRecordOf(r *client.AuditRecord) job.TrailRecord {
	at := unixtime.MilliOf(r.GetTime().AsTime())
	if !at.Time().Equal(r.GetTime().AsTime()) {
		at = 0
	}
	return job.TrailRecord{
		ID: r.GetId(), AtMS: at, Identity: r.GetIdentity(), Peer: r.GetPeer(),
		Node:   r.GetNode(),
		Method: r.GetMethod(), Resource: r.GetResource(), Names: r.GetNames(), Fields: r.GetChangedFields(),
		RequestID: r.GetRequestId(),
		Code:      int(r.GetCode()), Changed: r.GetChanged(), Refused: r.GetRefused(), Before: r.GetBeforeDigest(),
		After: r.GetAfterDigest(),
		Seq:   r.GetSequence(), Version: int(r.GetChainVersion()), Hash: r.GetHash(), Prev: r.GetPreviousHash(),
		KeyID: r.GetKeyId(), Signature: r.GetSignature(),
	}
}
