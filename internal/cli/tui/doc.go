// Package tui draws on a terminal: lines of styled text, laid out by whoever calls
// it, and nothing else. It knows no widgets.
//
// Invariants:
//
//  1. A frame is written at once, over the last one, and never moves the terminal's
//     contents: [Screen.Draw] writes no more lines than it was given, and the caller no
//     more than [Screen.Size] tells.
//  2. After [Screen.Leave] the terminal shows what it showed before [Screen.Enter].
//  3. Text without colours carries no control codes. What comes from outside has to pass
//     [Clean] first.
package tui
