// Command build writes the Grafana dashboards of Fermata into a directory.
//
//	go run ./deploy/grafana/build deploy/grafana
//
// Dashboards are code, one file each: what they ask, what a figure means and what to
// do about it stand together, and layout, ids and JSON are made from that.
//
// Invariants:
//
//  1. Only panel types of Grafana's core, and no schema above version 39, so that
//     Grafana 9 and later can show them.
//  2. The data source, and what is looked at, are variables: nothing is bound to one
//     installation.
//  3. Every panel says what to do about what it shows.
//  4. The same source gives the same bytes.
package main
