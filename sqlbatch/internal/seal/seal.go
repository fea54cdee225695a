// Package seal keeps the interfaces of sqlbatch to the engines that chanq has.
package seal

// Seal is a parameter that only packages below sqlbatch can name. A type that
// embeds it has the method that sqlbatch's interfaces require.
type Seal struct{}

// Sealed does nothing.
func (Seal) Sealed(Seal) {}
