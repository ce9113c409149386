//go:build !race

package acceptance

// raceDetector is set if the tests have the race detector, and so have the nodes of
// [newRacedCluster].
const raceDetector = false
