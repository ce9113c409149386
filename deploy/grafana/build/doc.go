// Command build writes the Grafana dashboards of Fermata into a directory.
//
//	go run ./deploy/grafana/build deploy/grafana
//
// Each dashboard is one Go file. It has the expressions, the meaning of each figure and the advice next to each other.
// Layout, ids and JSON are generated from it.
//
// Invariants:
//
//  1. Only panel types of Grafana's core, and no schema above version 39, so that
//     Grafana 9 and later can show them.
//  2. The data source and the selection are variables: nothing depends on one installation.
//  3. The description of every panel has advice.
//  4. The same source gives the same bytes.
package main
