//go:build ownerreads

package build

// OwnerReads is the switch of an experiment: tables of ordered queues are made for reads by owners.
const OwnerReads = true
