package registry

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// This file changes all jobs or dead letters that match a filter, a page of them per call. A page is planned first: its
// matches are stored, in a cell of the shared limits, before any of them is changed. So a page that is repeated after a
// lost reply, or by another node, is about the same matches. Each input of the ledger names what was found (an etag, a
// pause, a run, an instant of death, or the id of the request), so that no match is changed twice.

const (
	// bulkPlanSize is how many matches one page plans.
	bulkPlanSize = 250
	// maxRefusedBytes bounds the names of a page's refusals, as they are stored. It has room for 20 of the longest.
	maxRefusedBytes = 8 << 10
	// bulkTries is how often a call begins again because another call has stored progress of the same change.
	bulkTries = 8
	// storeProgressTime bounds the storing of a page's result after the call was cancelled.
	storeProgressTime = 2 * time.Second
)

// bulkChange is one call for a page of a change.
type bulkChange struct {
	*Registry
	job.BulkRequest
	cell     string // its name
	binding  string
	text     string // of the cell, as it was read
	nowMS    unixtime.Milli
	progress bulkProgress
}

// bulkProgress is how far a change has got, as its cell has it.
type bulkProgress struct {
	Binding string `json:"b"`
	// StartMS is when the dry run began: relative times of the filter count from it.
	StartMS   unixtime.Milli `json:"s"`
	Confirmed int64          `json:"n,omitempty"` // matches; 0: none were confirmed
	// Page is the number of the page that is next, or that is being changed. Place is where it begins.
	Page  int       `json:"p"`
	Place string    `json:"l,omitempty"`
	Plan  *bulkPlan `json:"plan,omitempty"` // of Page
	// Total has the counts of the pages before Page, and Last the result of the last one.
	Total job.BulkCounts `json:"t"`
	Last  *bulkResult    `json:"last,omitempty"`
	Done  bool           `json:"d,omitempty"`
	// AtMS is when the last call began that stored this; 0: a node of an earlier version stored it.
	AtMS unixtime.Milli `json:"at,omitempty"`
}

// planPhase is how far a plan has got.
type planPhase uint8

const (
	planMade     planPhase = iota // no call has changed anything of it
	planBegun                     // one call may have
	planRepeated                  // more than one may have
)

// bulkPlan has the matches of a page.
type bulkPlan struct {
	Targets []job.BulkTarget `json:"m"`
	Next    string           `json:"l,omitempty"` // where the listing continues; "": nowhere
	Phase   planPhase        `json:"p,omitempty"`
	// Nonce differs between calls, so that only one of them begins a plan.
	Nonce string `json:"n"`
}

// bulkResult is the result of a page.
type bulkResult struct {
	job.BulkCounts
	Refusals []job.BulkRefusal `json:"f,omitempty"`
	Names    []job.BulkTarget  `json:"names,omitempty"`

	refusedBytes int // of the names of Refusals
}

// ChangeMatching changes a page of what matches a filter, or counts it in a dry run.
func (r *Registry) ChangeMatching(ctx context.Context, q job.BulkRequest) (job.BulkPage, error) {
	if err := validateBulk(q); err != nil {
		return job.BulkPage{}, err
	}
	if q.DryRun {
		return r.countMatches(ctx, q)
	}
	c := &bulkChange{Registry: r, BulkRequest: q, cell: bulkCell(q), binding: bindingOf(q)}
	for range bulkTries {
		page, stored, err := c.tryPage(ctx)
		if stored || err != nil {
			return page, err
		}
	}
	return job.BulkPage{}, job.ErrConflict
}

func validateBulk(q job.BulkRequest) error {
	v := job.ValidateFilter(q.Filter)
	add := func(field, fault string) {
		if fault != "" {
			v = append(v, job.Violation{Field: field, Description: fault})
		}
	}
	if q.Filter.Condition == nil {
		add("filter", "is required; id:* selects all")
	}
	if q.DryRun {
		if q.Confirmation != "" {
			add("confirmation", "must be unset in a dry run, which returns one")
		}
	} else {
		add("request_id", job.ValidateManualID(q.RequestID))
	}
	add("note", job.ValidateNote(q.Options.Note))
	if q.Options.PauseID != "" {
		add("pause_id", job.ValidateManualID(q.Options.PauseID))
	}
	if q.Options.Mode > job.ManualResetOnSuccess {
		add("backoff", "is unknown")
	}
	if len(v) > 0 {
		return &job.InvalidError{Violations: v}
	}
	return nil
}

// bulkCell returns the name of the cell of a change. Changes of different callers have different cells.
func bulkCell(q job.BulkRequest) string {
	return job.BulkName(digestOf(q.Caller, q.Action.String(), q.Filter.Namespace, q.RequestID))
}

// bindingOf returns a digest of all that a confirmation is given for, but for the number of matches.
func bindingOf(q job.BulkRequest) string {
	return digestOf(q.Caller, q.Action.String(), q.Filter, q.Options)
}

func digestOf(parts ...any) string {
	text, err := json.Marshal(parts)
	if err != nil {
		panic(err) // structs of strings and numbers
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:18])
}

// tryPage makes one attempt at a page. stored is false if another call has stored progress meanwhile.
func (c *bulkChange) tryPage(ctx context.Context) (page job.BulkPage, stored bool, err error) {
	if err := c.loadProgress(ctx); err != nil {
		return page, false, err
	}
	p := &c.progress
	n, err := c.pageNumber()
	switch {
	case err != nil:
		return page, false, err
	case n == p.Page-1:
		page = p.lastPage()
		page.Repeat, page.Finished = true, true
		return page, true, nil
	case n != p.Page || p.Done:
		return page, false, job.Invalid("page_token", "is of a page that this change has passed, or not reached")
	}
	repeat := p.Plan != nil && p.Plan.Phase != planMade
	if begun, err := c.beginPage(ctx, repeat); err != nil || !begun {
		return page, false, err
	}
	result, err := c.changeTargets(ctx, p.Plan.Targets, repeat)
	if err != nil {
		return page, false, err
	}
	p.finishPage(result)
	if p.Done && p.Total.Matched == 0 && c.text == "" {
		return p.lastPage(), true, nil // nothing matched: a repetition may search again
	}
	if stored, err = c.storeResult(ctx); err != nil || !stored {
		return page, false, err
	}
	page = p.lastPage()
	page.Repeat = repeat
	return page, true, nil
}

// loadProgress reads the progress of the change, or begins a new one.
func (c *bulkChange) loadProgress(ctx context.Context) error {
	reply := c.o.SharedLimits.ReadCells(ctx, []string{c.cell})[0]
	if reply.Err != nil {
		return reply.Err
	}
	c.text, c.nowMS, c.progress = reply.Text, reply.NowMS, bulkProgress{}
	if reply.Text == "" {
		if c.Token != "" {
			return &job.BulkError{Reason: job.ReasonBulkChangeUnknown,
				Text: "there is no change with this request_id, or it has ended a week ago: begin anew without a page_token"}
		}
		return c.beginChange(reply.NowMS)
	}
	if err := json.Unmarshal([]byte(reply.Text), &c.progress); err != nil {
		return fmt.Errorf("%w: progress of a change: %w", job.ErrCorrupt, err)
	}
	if c.progress.Binding != c.binding {
		return job.Invalid("request_id", "belongs to a change with another filter or other options")
	}
	return nil
}

// beginChange starts the progress of a change by its confirmation, if it has one.
func (c *bulkChange) beginChange(now unixtime.Milli) error {
	c.progress = bulkProgress{Binding: c.binding, StartMS: now}
	if c.Confirmation == "" {
		return nil
	}
	count, err := c.openToken(confirmationToken, c.Confirmation, c.binding)
	if err != nil {
		return err
	}
	if count.ExpireMS <= now {
		return &job.BulkError{Reason: job.ReasonConfirmationExpired,
			Text: "the confirmation has expired: count again by a dry run", Confirmed: count.Matched}
	}
	c.progress.StartMS, c.progress.Confirmed = count.StartMS, count.Matched
	return nil
}

// pageNumber returns the page that the call asks for: without a token the one that is being changed, if it is the
// first, or else the last one that was finished, from whose answer the caller continues.
func (c *bulkChange) pageNumber() (int, error) {
	if c.Token == "" {
		return max(0, c.progress.Page-1), nil
	}
	digits, ok := strings.CutPrefix(c.Token, "p")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 1 {
		return 0, job.Invalid("page_token", "is not one that %s gave", c.Action)
	}
	return n, nil
}

// beginPage plans the page, if it has no plan, and stores that it begins. begun is false if another call has stored
// progress meanwhile.
func (c *bulkChange) beginPage(ctx context.Context, repeat bool) (begun bool, err error) {
	p := &c.progress
	if p.Plan == nil {
		if err := c.planPage(ctx); err != nil {
			return false, err
		}
	}
	switch {
	case len(p.Plan.Targets) == 0, p.Plan.Phase == planRepeated:
		return true, nil
	case repeat:
		// The call that has begun it finds another text, and judges its results as a repetition.
		p.Plan.Phase = planRepeated
	default:
		p.Plan.Phase = planBegun
	}
	return c.storeProgress(ctx)
}

// planPage finds the matches of the page.
func (c *bulkChange) planPage(ctx context.Context) error {
	p := &c.progress
	c.Filter.NowMS = p.StartMS
	targets, next, err := c.findTargets(ctx, c.BulkRequest, p.Place)
	if err != nil {
		return err
	}
	matched := p.Total.Matched + int64(len(targets))
	switch {
	case p.Confirmed == 0 && c.Confirmation == "" && (next != "" || matched > job.MaxUnconfirmedMatches):
		return &job.BulkError{Reason: job.ReasonConfirmationRequired, Matched: matched, Text: fmt.Sprintf(
			"more than %d may match: count them by a dry run, and pass its confirmation", job.MaxUnconfirmedMatches)}
	case matched > max(job.MaxUnconfirmedMatches, p.Confirmed+p.Confirmed/10):
		return job.NewTooManyMatchesError(matched, p.Confirmed)
	}
	p.Plan = &bulkPlan{Targets: targets, Next: next, Nonce: rand.Text()}
	return nil
}

// storeProgress replaces the text of the cell. swapped is false if it is no longer the one that was read.
func (c *bulkChange) storeProgress(ctx context.Context) (swapped bool, err error) {
	if c.text == "" {
		if err := c.enlist(ctx); err != nil {
			return false, err
		}
	}
	c.progress.AtMS = c.nowMS
	text, err := json.Marshal(&c.progress)
	if err != nil {
		return false, err
	}
	reply := c.o.SharedLimits.SwapCells(ctx, []job.CellSwap{{Name: c.cell, Old: c.text, New: string(text)}})[0]
	if reply.Err != nil && !errors.Is(reply.Err, job.ErrDurability) {
		return false, reply.Err
	}
	c.text = string(text)
	return reply.Swapped, nil
}

// storeResult stores the result of the page, also if the caller no longer waits for it.
func (c *bulkChange) storeResult(ctx context.Context) (swapped bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeProgressTime)
	defer cancel()
	return c.storeProgress(ctx)
}

// finishPage counts the result of a page. Matches that it did not get to are those of the next page.
func (p *bulkProgress) finishPage(result *bulkResult) {
	rest := p.Plan.Targets[result.Matched:]
	p.Total, p.Last = p.Total.Plus(result.BulkCounts), result
	p.Page++
	if len(rest) > 0 {
		p.Plan = &bulkPlan{Targets: rest, Next: p.Plan.Next, Nonce: rand.Text()}
		return
	}
	p.Place, p.Done, p.Plan = p.Plan.Next, p.Plan.Next == "", nil
}

// lastPage is the answer to a call for the last page that was finished.
func (p *bulkProgress) lastPage() job.BulkPage {
	page := job.BulkPage{BulkCounts: p.Last.BulkCounts, Refusals: p.Last.Refusals, Names: p.Last.Names, Total: p.Total}
	if !p.Done {
		page.Next = "p" + strconv.Itoa(p.Page)
	}
	return page
}
