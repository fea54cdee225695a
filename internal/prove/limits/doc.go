// Package limits is tests alone: chanq with too few connections, too many
// messages, a full disk, a clock that is wrong, and everything counted that it
// leaves behind. docs/reliability.md has what they found.
package limits
