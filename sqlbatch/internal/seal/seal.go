// Package seal restricts implementations of sqlbatch's interfaces to the dialects of chanq.
package seal

// Seal is a parameter that only packages below sqlbatch can name. A type that embeds it has the
// method that sqlbatch's interfaces require.
type Seal struct{}

// Sealed does nothing.
func (Seal) Sealed(Seal) {}
