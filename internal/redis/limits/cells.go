package limits

import (
	"context"
	"fmt"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// maxCell bounds the text of a cell, in bytes: a page of a change of many jobs is one.
const maxCell = 256 << 10

// ReadCells reads cells. A cell is deleted when it has not been written for a week.
func (s *Store) ReadCells(ctx context.Context, names []string) []job.CellReply {
	items := make([]limitItem, len(names))
	for i, name := range names {
		items[i] = limitItem{name: name, argv: []any{"r", "", ""}, err: validateLimitNames(name)}
	}
	return readCells(s.runLimitItems(ctx, s.scripts.read, items, "cell:"))
}

// SwapCells replaces texts of cells, up to 256 KiB each, where the old text is as
// given. A cell that has the new text already counts as swapped: the call may be
// repeated. A reply whose Err is job.ErrDurability is complete.
func (s *Store) SwapCells(ctx context.Context, swaps []job.CellSwap) []job.CellReply {
	items := make([]limitItem, len(swaps))
	for i, c := range swaps {
		items[i] = limitItem{name: c.Name, argv: []any{"s", c.Old, c.New}, err: validateSwap(c)}
	}
	return readCells(s.runLimitItems(ctx, s.scripts.swap, items, "cell:"))
}

func validateSwap(c job.CellSwap) error {
	if n := max(len(c.Old), len(c.New)); n > maxCell {
		return fmt.Errorf("cell %.64q: a text of %d bytes, at most %d are allowed", c.Name, n, maxCell)
	}
	return validateLimitNames(c.Name)
}

func readCells(answers []limitReply) []job.CellReply {
	replies := make([]job.CellReply, len(answers))
	for i, a := range answers {
		replies[i].Err = a.err
		if a.complete() {
			replies[i] = job.CellReply{
				Swapped: a.IntAt(0) == 1, Text: a.TextAt(1), NowMS: unixtime.Milli(a.nowMS), LagMS: a.lagMS,
				Err: a.err,
			}
		}
	}
	return replies
}
