//go:build race

package acceptance

// raceDetector tells that scheduler processes are to be built with it too.
const raceDetector = true
