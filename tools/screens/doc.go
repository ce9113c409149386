// Command screens draws Fermata's Grafana dashboards as pictures, with the figures that a
// Prometheus has.
//
//	go run . -prometheus http://127.0.0.1:9090 -dashboards ../../deploy/grafana -out ../../docs/images
//
// It reads the JSON that people import into Grafana, asks the expressions of every panel as
// Grafana asks them, and lays out what they answer as Grafana does: on its grid of 24
// columns, with units, legends, thresholds, overrides of colours and annotations. So that a
// picture shows a fault of its dashboard too: an empty panel, a unit that misleads, a
// legend that nobody can read.
//
// It is a module of its own: what draws is not linked into Fermata.
//
// Invariants:
//
//  1. A picture shows what its dashboard's JSON and Prometheus say, and nothing else.
//  2. A panel whose type or unit is unknown here is an error, not a blank.
//  3. An expression that Prometheus refuses is an error. One that finds nothing is drawn
//     as "No data", and named on standard output.
//  4. The same answers give the same bytes.
package main
