//go:build ownerreads

package chanq

const ownerReads = true
