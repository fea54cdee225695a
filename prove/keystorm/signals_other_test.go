//go:build !unix

package keystorm_test

import "errors"

// Processes cannot be stopped here: a storm does without.
func freeze(int) error { return errors.ErrUnsupported }
func thaw(int) error   { return errors.ErrUnsupported }
