// Package chart checks deploy/helm/fermata without a cluster: it renders the chart with
// Helm's own engine for several sets of values, decodes every object strictly into its Go
// type, and holds the objects against the rules of the chart and the flags of the binaries.
//
// It is a module of its own, because Helm's and Kubernetes' packages are not the product's.
package chart
