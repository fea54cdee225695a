// Package shards proves what docs/shards.md promises of one queue over several places: each in
// a database of its own, of one engine or of three, of which any may be away.
package shards
