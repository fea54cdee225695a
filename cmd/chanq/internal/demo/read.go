package demo

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// errChanged: the file differs from the listed one.
type errChanged struct{ how string }

func (e *errChanged) Error() string { return e.how }

// digest hashes a file that matches its listing before and after. Otherwise the error is an
// *errChanged.
func digest(root *os.Root, f file) ([]byte, error) {
	info, err := root.Lstat(f.Path)
	if err != nil {
		return nil, readError(err)
	}
	if err := unchanged(f, info); err != nil {
		return nil, err // not opened: a named pipe would block
	}
	r, err := root.Open(f.Path)
	if err != nil {
		return nil, readError(err)
	}
	defer r.Close()
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return nil, readError(err)
	}
	if info, err = r.Stat(); err != nil {
		return nil, readError(err)
	}
	if err := unchanged(f, info); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}

func unchanged(f file, now fs.FileInfo) error {
	switch {
	case !now.Mode().IsRegular():
		return &errChanged{"it is a " + kind(now.Mode()) + " now"}
	case now.Size() != f.Size:
		return &errChanged{fmt.Sprintf("its size was %d and is %d", f.Size, now.Size())}
	case now.ModTime().UnixNano() != f.Mtime:
		return &errChanged{"it was written at " + now.ModTime().Format(time.RFC3339Nano)}
	}
	return nil
}

// readError: a file that is missing or unreadable has changed since it was listed, because it could
// be opened then. Any other error may be temporary.
func readError(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return &errChanged{reason(err)}
	}
	return err
}

// reason returns the text of an error without the path, which is printed separately.
func reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return err.Error()
}
