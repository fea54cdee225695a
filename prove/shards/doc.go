// Package shards tests the guarantees of docs/shards.md for one queue over several databases,
// of one engine or of three, of which any may be unavailable.
package shards
