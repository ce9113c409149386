// Package tui draws lines of styled text on a terminal. The caller lays them out; there are no
// widgets.
//
// Invariants:
//
//  1. A frame is written at once, over the last one, and never scrolls the terminal:
//     [Screen.Draw] writes the lines that it is given, and the caller gives it no more than
//     [Screen.Size] returns.
//  2. After [Screen.LeaveFullScreen] the terminal shows what it showed before [Screen.EnterFullScreen].
//  3. Text without colours has no control codes. Text from outside must pass [StripControls] first.
package tui
