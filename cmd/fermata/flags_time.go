package main

import (
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/core/schedule"
)

var timeLayouts = []string{"2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04",
	"2006-01-02"}

// timeReader reads times from flags. One without an offset is local time in the location.
type timeReader struct {
	location *time.Location
	remarks  []string // on times that a change of the clock leaves out or repeats, and on past ones
}

// parseOptional returns nil for an empty text.
func (r *timeReader) parseOptional(flag, text string) (*timestamppb.Timestamp, error) {
	if text == "" {
		return nil, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return timestamppb.New(t), nil
	}
	for _, layout := range timeLayouts {
		local, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		at, remark := schedule.AtLocal(local, r.location)
		if remark != "" {
			r.remarks = append(r.remarks, fmt.Sprintf("%s %s in %s: %s", flag, text, r.location, remark))
		}
		return timestamppb.New(at), nil
	}
	return nil, usageErrorf("%s %q: want a time such as 2030-01-31T12:00:00Z or '2030-01-31 12:00'", flag, text)
}

// parseRequired reads a time that must be given.
func (r *timeReader) parseRequired(flag, text string) (*timestamppb.Timestamp, error) {
	if text == "" {
		return nil, usageErrorf("%s is empty: give a time", flag)
	}
	return r.parseOptional(flag, text)
}

func (r *timeReader) addRemark(format string, args ...any) {
	r.remarks = append(r.remarks, fmt.Sprintf(format, args...))
}

// writeRemarks writes the remarks.
func (r *timeReader) writeRemarks(w io.Writer) {
	for _, remark := range r.remarks {
		fmt.Fprintln(w, "note:", printableText(remark))
	}
}
