package main

import (
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const (
	columnGap = 3
	// minTextWidth is how short the text of the last column may become on a terminal.
	minTextWidth = 28
)

// freeTextColumns are the columns whose text may be shortened on a terminal.
var freeTextColumns = map[string]bool{"LAST ERROR": true, "ERROR": true, "REASON": true, "DETAIL": true, "URL": true,
	"WHAT": true, "DESCRIPTION": true, "KNOWN AS": true, "FORMULA": true, "VALUE": true, "CHANGED": true}

// dropNamespaceFirst makes NAMESPACE the first column to leave out of a list of one namespace.
func (t outputTable) dropNamespaceFirst(oneNamespace bool) outputTable {
	if oneNamespace {
		t.leadingColumns = append([]string{"NAMESPACE"}, t.leadingColumns...)
	}
	return t
}

// columnsFlag makes a command one that lists things: it has --columns, and prints names with -o name. See
// [registerList].
func (a *app) columnsFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringSliceVar(&a.columnNames, "columns", nil,
		"write these columns of the table only, in this order, such as name,last-error (default: all, or what fits "+
			"the terminal)")
	annotate(cmd, printsNames)
	annotate(cmd, printsList)
	return cmd
}

// columnName is how --columns names a column.
func columnName(heading string) string { return strings.ToLower(strings.ReplaceAll(heading, " ", "-")) }

// chooseColumns is the table with the columns of that names alone, in their order.
func (t outputTable) chooseColumns(names []string) (outputTable, error) {
	var at []int
	for _, name := range names {
		wanted := columnName(strings.TrimSpace(name))
		i := slices.IndexFunc(t.heading, func(heading string) bool { return columnName(heading) == wanted })
		if i < 0 {
			known := make([]string, len(t.heading))
			for i, heading := range t.heading {
				known[i] = columnName(heading)
			}
			return t, usageErrorf("--columns %q: want some of %s", name, strings.Join(known, ", "))
		}
		at = append(at, i)
	}
	pick := func(row []string) []string {
		picked := make([]string, len(at))
		for i, from := range at {
			picked[i] = row[from]
		}
		return picked
	}
	chosen := outputTable{heading: pick(t.heading), empty: t.empty}
	for _, row := range t.rows {
		chosen.rows = append(chosen.rows, pick(row))
	}
	return chosen, nil
}

// terminalWidth is the width of the terminal that the command writes to, and 0 where it writes to none.
func (a *app) terminalWidth() int {
	if a.width > 0 {
		return a.width
	}
	file, isFile := a.out.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// narrowTo fits a table into a width: it shortens the text of the last column, and leaves out columns: those of
// leadingColumns in their order, then the last ones. The first column, which names things, stays as it is.
func (t outputTable) narrowTo(width int) outputTable {
	if width <= 0 || len(t.leadingColumns) == 0 {
		return t
	}
	t.rows = slices.Clone(t.rows)
	for _, name := range t.leadingColumns {
		if t.shortenLastColumn(width) {
			return t
		}
		t = t.withoutColumn(name)
	}
	for len(t.heading) > 1 && !t.shortenLastColumn(width) {
		t = t.withoutColumn(t.heading[len(t.heading)-1])
	}
	return t
}

// shortenLastColumn cuts the text of the last column, if the table fits the width by that.
func (t *outputTable) shortenLastColumn(width int) bool {
	widths := t.columnWidths()
	total := columnGap * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	last := len(widths) - 1
	room := widths[last] - (total - width)
	switch {
	case total <= width:
		return true
	case last == 0 || !freeTextColumns[t.heading[last]] || room < max(minTextWidth, len(t.heading[last])):
		return false
	}
	for i, row := range t.rows {
		row = slices.Clone(row)
		row[last] = clipText(row[last], room)
		t.rows[i] = row
	}
	return true
}

func (t *outputTable) columnWidths() []int {
	widths := make([]int, len(t.heading))
	for _, row := range append([][]string{t.heading}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// withoutColumn is the table without a column.
func (t outputTable) withoutColumn(name string) outputTable {
	at := slices.Index(t.heading, name)
	if at < 0 {
		return t
	}
	cut := func(row []string) []string { return slices.Delete(slices.Clone(row), at, at+1) }
	out := t
	out.heading, out.rows = cut(t.heading), make([][]string, len(t.rows))
	for i, row := range t.rows {
		out.rows[i] = cut(row)
	}
	return out
}
