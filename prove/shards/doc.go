// Package shards tests the guarantees of docs/operate/shards.md for one queue over several databases, of
// one engine or of three. Any of the databases might be unavailable.
package shards
