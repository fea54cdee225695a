// Package check tests what the folder deploy has for others to run: alerts and dashboard with
// Prometheus's own packages, manifests and units by what they must have. It is a module of
// its own, so that chanq does not depend on Prometheus's server.
package check
