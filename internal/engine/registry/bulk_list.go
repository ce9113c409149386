package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/lib/fairshare"
)

// The progress of a change is kept for a week, so that calls may be repeated. Each namespace has a list of the changes
// whose progress it keeps, so that these are few. A change is in the list before its progress is stored. If a node dies
// in between, the list has a change without progress, which is dropped when room is needed.

const (
	// maxKeptChanges bounds the changes of a namespace whose progress is kept.
	maxKeptChanges = 64
	// maxProgressBytes is more than the progress of a change takes: its plan with the runs of one job beyond
	// maxPlanBytes, the names of its last page and maxRefusedBytes. No quota counts it, so this times maxKeptChanges
	// bounds what a namespace has of it.
	maxProgressBytes = 72 << 10
	// spareChanges is how much room is made at once.
	spareChanges = 8
	// idleChange is how long nobody has continued a change whose progress may be dropped for that of others.
	idleChange = 15 * time.Minute
)

// bulkList is the list of a namespace.
type bulkList struct {
	Changes []listedChange `json:"c"`
}

// listedChange is a change in the list of its namespace.
type listedChange struct {
	Cell    string         `json:"c"`
	Owner   string         `json:"o"` // digest of the caller
	BeganMS unixtime.Milli `json:"t"`

	text             string // of its cell
	usedMS           unixtime.Milli
	isGone, isActive bool
}

// enlist adds the change to the list of its namespace.
func (c *bulkChange) enlist(ctx context.Context) error {
	for range bulkTries {
		list, text, err := c.readBulkList(ctx)
		if err != nil || list.has(c.cell) {
			return err
		}
		owner := digestOf(c.Caller)
		dropped, err := c.makeRoom(ctx, &list, owner)
		if err != nil {
			return err
		}
		list.Changes = append(list.Changes, listedChange{Cell: c.cell, Owner: owner, BeganMS: c.nowMS})
		stored, err := c.swapBulkList(ctx, list, text)
		if err != nil {
			return err
		}
		if stored {
			return c.dropProgress(ctx, dropped)
		}
	}
	return job.ErrConflict
}

func (l *bulkList) has(cell string) bool {
	return slices.ContainsFunc(l.Changes, func(e listedChange) bool { return e.Cell == cell })
}

func (c *bulkChange) readBulkList(ctx context.Context) (list bulkList, text string, err error) {
	reply := c.o.SharedLimits.ReadCells(ctx, []string{job.BulkListName(c.Filter.Namespace)})[0]
	if reply.Err != nil || reply.Text == "" {
		return list, "", reply.Err
	}
	if err := json.Unmarshal([]byte(reply.Text), &list); err != nil {
		return list, "", fmt.Errorf("%w: changes of a namespace: %w", job.ErrCorrupt, err)
	}
	return list, reply.Text, nil
}

func (c *bulkChange) swapBulkList(ctx context.Context, list bulkList, old string) (stored bool, err error) {
	text, err := json.Marshal(list)
	if err != nil {
		return false, err
	}
	swap := job.CellSwap{Name: job.BulkListName(c.Filter.Namespace), Old: old, New: string(text)}
	reply := c.o.SharedLimits.SwapCells(ctx, []job.CellSwap{swap})[0]
	if reply.Err != nil && !errors.Is(reply.Err, job.ErrDurability) {
		return false, reply.Err
	}
	return reply.Swapped, nil
}

// makeRoom removes changes from a full list: those that are finished, or that nobody continues, the oldest first of the
// identity with the most. The list is full for an identity that has as many as are free. It returns whose progress is
// to be dropped.
func (c *bulkChange) makeRoom(ctx context.Context, list *bulkList, owner string) (dropped []listedChange, err error) {
	if list.hasRoomFor(owner) {
		return nil, nil
	}
	if err := c.judgeChanges(ctx, list); err != nil {
		return nil, err
	}
	list.Changes = slices.DeleteFunc(list.Changes, func(e listedChange) bool { return e.isGone })
	slices.SortStableFunc(list.Changes, func(a, b listedChange) int { return cmp.Compare(a.usedMS, b.usedMS) })
	for !fairshare.MayTake(list.ownedBy(owner), maxKeptChanges-spareChanges-len(list.Changes), 1) {
		i := list.droppable(owner)
		if i < 0 {
			break
		}
		dropped = append(dropped, list.Changes[i])
		list.Changes = slices.Delete(list.Changes, i, i+1)
	}
	if !list.hasRoomFor(owner) {
		return nil, &job.BulkError{Reason: job.ReasonTooManyBulkChanges, Text: fmt.Sprintf(
			"%d changes of this namespace are under way: continue or repeat them, or wait a quarter of an hour",
			len(list.Changes))}
	}
	return dropped, nil
}

// droppable returns the place of the change that may be dropped for one of an owner: of those that are not active, the
// first one of the identity with the most; -1: there is none. Where there is room for others, it is one of that owner.
func (l *bulkList) droppable(owner string) int {
	isFull := len(l.Changes) >= maxKeptChanges-spareChanges
	owned := map[string]int{owner: 1} // the one that comes
	for _, e := range l.Changes {
		owned[e.Owner]++
	}
	place := -1
	for i, e := range l.Changes {
		if e.isActive || !isFull && e.Owner != owner {
			continue
		}
		if place < 0 || owned[e.Owner] > owned[l.Changes[place].Owner] {
			place = i
		}
	}
	return place
}

func (l *bulkList) ownedBy(owner string) (n int) {
	for _, e := range l.Changes {
		if e.Owner == owner {
			n++
		}
	}
	return n
}

func (l *bulkList) hasRoomFor(owner string) bool {
	return fairshare.MayTake(l.ownedBy(owner), maxKeptChanges-len(l.Changes), 1)
}

// judgeChanges reads the progress of the changes in a list.
func (c *bulkChange) judgeChanges(ctx context.Context, list *bulkList) error {
	names := make([]string, len(list.Changes))
	for i, e := range list.Changes {
		names[i] = e.Cell
	}
	for i, reply := range c.o.SharedLimits.ReadCells(ctx, names) {
		if reply.Err != nil {
			return reply.Err
		}
		e := &list.Changes[i]
		var p bulkProgress
		isValid := json.Unmarshal([]byte(reply.Text), &p) == nil
		e.text, e.usedMS = reply.Text, max(e.BeganMS, p.AtMS)
		isIdle := c.nowMS.Sub(e.usedMS) >= idleChange
		e.isGone = reply.Text == "" && isIdle // without progress it may be about to begin
		e.isActive = !isIdle && !(isValid && p.Done)
	}
	return nil
}

// dropProgress deletes the progress of changes, unless another call has continued them meanwhile. These are in no list
// then, until they are a week old.
func (c *bulkChange) dropProgress(ctx context.Context, changes []listedChange) error {
	var swaps []job.CellSwap
	for _, e := range changes {
		if e.text != "" {
			swaps = append(swaps, job.CellSwap{Name: e.Cell, Old: e.text})
		}
	}
	if len(swaps) == 0 {
		return nil
	}
	for _, reply := range c.o.SharedLimits.SwapCells(ctx, swaps) {
		if reply.Err != nil && !errors.Is(reply.Err, job.ErrDurability) {
			return reply.Err
		}
	}
	return nil
}
