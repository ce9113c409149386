// Package storecycle measures what lease and settlement of a batch cost Redis, by the
// product's own store: its benchmark is run by the scenario "cpu".
package storecycle
