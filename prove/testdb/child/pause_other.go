//go:build !unix

package child

import "errors"

// Pause and Resume fail on systems where no signal stops a process.
func (p *Process) Pause() error  { return errors.ErrUnsupported }
func (p *Process) Resume() error { return errors.ErrUnsupported }
