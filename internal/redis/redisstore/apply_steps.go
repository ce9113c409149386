package redisstore

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Steps of apply.lua. A step is one letter in the text of steps that each item of the script
// has, followed by its arguments among those of the item. This table is the only place that
// has the letters: apply.lua names a step by the macro in the table, which [expandMacros]
// replaces when the script is loaded. The script as sent to Redis has the letters themselves,
// so that names cost nothing.
const (
	stepOnlyAfter     = 'a'
	stepTogether      = 't'
	stepIfExpired     = 'x'
	stepWrite         = 'w'
	stepKeepLease     = 'k'
	stepDelete        = 'd'
	stepSetAside      = 'q'
	stepLeaveLane     = 'u'
	stepMove          = 'l'
	stepSpawn         = 's'
	stepDefine        = 'f'
	stepHistory       = 'h'
	stepLetter        = 'c'
	stepLetterFrom    = 'm'
	stepTrim          = 'z'
	stepRank          = 'r'
	stepWatch         = 'o'
	stepWatchSpawned  = 'b'
	stepRevise        = 'v'
	stepForget        = 'g'
	stepUnsuccessful  = 'e'
	stepSpawnPayload  = 'p'
	stepLetterPayload = 'n'
	stepMoveRuns      = 'y'
	stepEarlierRun    = 'j'
)

// historySteps are the steps that write into the history, or delete from it.
const historySteps = string(stepHistory) + string(stepEarlierRun) + string(stepLetter) + string(stepTrim) +
	string(stepMoveRuns)

// applyStep describes a step: its letter, its macro in apply.lua, and how many arguments it has.
type applyStep struct {
	letter    byte
	macro     string
	arguments int
}

var applySteps = []applyStep{
	{stepOnlyAfter, "STEP_ONLY_AFTER", 0},
	{stepTogether, "STEP_TOGETHER", 0},
	{stepIfExpired, "STEP_IF_EXPIRED", 0},
	{stepWrite, "STEP_WRITE", 2},
	{stepKeepLease, "STEP_KEEP_LEASE", 1},
	{stepDelete, "STEP_DELETE", 0},
	{stepSetAside, "STEP_SET_ASIDE", 0},
	{stepLeaveLane, "STEP_LEAVE_LANE", 0},
	{stepMove, "STEP_MOVE", 1},
	{stepSpawn, "STEP_SPAWN", 4},
	{stepDefine, "STEP_DEFINE", 1},
	{stepHistory, "STEP_HISTORY", 2},
	{stepLetter, "STEP_LETTER", 6},
	{stepLetterFrom, "STEP_LETTER_FROM", 1},
	{stepTrim, "STEP_TRIM", 2},
	{stepRank, "STEP_RANK", 3},
	{stepWatch, "STEP_WATCH", 2},
	{stepWatchSpawned, "STEP_WATCH_SPAWNED", 2},
	{stepRevise, "STEP_REVISE", 4},
	{stepForget, "STEP_FORGET", 1},
	{stepUnsuccessful, "STEP_UNSUCCESSFUL", 7},
	{stepSpawnPayload, "STEP_SPAWN_PAYLOAD", 1},
	{stepLetterPayload, "STEP_LETTER_PAYLOAD", 1},
	{stepMoveRuns, "STEP_MOVE_RUNS", 3},
	{stepEarlierRun, "STEP_EARLIER_RUN", 2},
}

// Steps of plain items. Apply has two paths, because nearly all records that it writes settle a
// run in one of these four ways: the new state, with or without an entry of the history, or a
// deletion, with or without a history. Items of the same plain steps in one lane are sent as one
// group, and apply.lua handles a group in a loop that looks up no step and makes no table for a
// record. All other items are general: the script parses their steps one by one, and checks
// what they have to do with other items.
const (
	plainWrite        = string(stepWrite)
	plainWriteHistory = string(stepWrite) + string(stepHistory)
	plainDelete       = string(stepDelete)
	plainDeleteTrim   = string(stepDelete) + string(stepTrim)
)

// plainSteps are the steps of plain items, by their macro in apply.lua.
var plainSteps = map[string]string{
	"PLAIN_WRITE": plainWrite, "PLAIN_WRITE_HISTORY": plainWriteHistory, "PLAIN_DELETE": plainDelete,
	"PLAIN_DELETE_TRIM": plainDeleteTrim,
}

// applyMacros has the Lua text of each macro of apply.lua:
//
//	STEP_...        the letter of a step, as the name of a field of an item
//	STEP_..._BYTE   its character code
//	STEP_ARGUMENTS  a table: letter -> number of arguments
//	PLAIN_...       the steps of a plain item, as a text
//	PLAIN_..._WIDTH how many values of ARGV a plain item has: its id, its guard and its arguments
var applyMacros = makeApplyMacros()

func makeApplyMacros() map[string]string {
	macros := map[string]string{}
	arguments := map[byte]int{}
	var table []string
	for _, s := range applySteps {
		macros[s.macro] = string(s.letter)
		macros[s.macro+"_BYTE"] = strconv.Itoa(int(s.letter))
		arguments[s.letter] = s.arguments
		table = append(table, fmt.Sprintf("%c = %d", s.letter, s.arguments))
	}
	macros["STEP_ARGUMENTS"] = "{" + strings.Join(table, ", ") + "}"
	for macro, steps := range plainSteps {
		width := 2
		for i := range len(steps) {
			width += arguments[steps[i]]
		}
		macros[macro] = "'" + steps + "'"
		macros[macro+"_WIDTH"] = strconv.Itoa(width)
	}
	return macros
}

var macroPattern = regexp.MustCompile(`\b(STEP|PLAIN)_[A-Z_]*[A-Z]\b`)

// expandMacros replaces the macros in a script. An unknown one is a programming error. Most lines have none, which is
// seen sooner without the pattern.
func expandMacros(script string) string {
	var expanded strings.Builder
	for line := range strings.Lines(script) {
		if strings.Contains(line, "STEP_") || strings.Contains(line, "PLAIN_") {
			line = macroPattern.ReplaceAllStringFunc(line, textOfMacro)
		}
		expanded.WriteString(line)
	}
	return expanded.String()
}

func textOfMacro(macro string) string {
	text, ok := applyMacros[macro]
	if !ok {
		panic("redisstore: no macro " + macro)
	}
	return text
}
