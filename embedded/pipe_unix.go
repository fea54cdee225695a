//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// pipe is a named pipe that is open for reading. It is also open for writing, so that reads never return EOF. One goroutine reads.
type pipe struct {
	name string
	file *os.File
	info fs.FileInfo
}

// openPipe opens a pipe. It creates the pipe and its directory if they are missing, writable by the users that can write to the
// database. As with lock files, the name may be in use if other users can write to the directory: links are not followed, and only a
// pipe is used.
func openPipe(name, database string) (*pipe, error) {
	info, err := os.Stat(database)
	if err != nil {
		return nil, err
	}
	mode := info.Mode().Perm()
	if err := makeDirectory(filepath.Dir(name), mode|mode&0o222>>1|mode&0o222<<1); err != nil {
		return nil, err
	}
	mode = mode&0o222 | mode&0o222<<1
	made := syscall.Mkfifo(name, uint32(mode))
	if made != nil && !errors.Is(made, fs.ErrExist) {
		return nil, &os.PathError{Op: "mkfifo", Path: name, Err: made}
	}
	fd, err := syscall.Open(name, syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	p := &pipe{name: name, file: os.NewFile(uintptr(fd), name)}
	if p.info, err = p.file.Stat(); err == nil && p.info.Mode().Type() != fs.ModeNamedPipe {
		err = fmt.Errorf("%s is not a named pipe (%w)", name, fs.ErrInvalid)
	}
	if err == nil && made == nil {
		err = p.file.Chmod(mode) // to override the umask
	}
	if err == nil {
		err = p.file.SetReadDeadline(time.Time{}) // otherwise a read could not be interrupted
	}
	if err != nil {
		_ = p.file.Close()
		return nil, err
	}
	return p, nil
}

func makeDirectory(name string, mode fs.FileMode) error {
	err := os.Mkdir(name, mode)
	if err == nil {
		return setMode(name, mode) // to override the umask
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(name)
	if err == nil && !info.IsDir() {
		err = notDirectory(name)
	}
	return err
}

// setMode sets the mode of a directory. Another file may have taken its name since its creation: a link is not followed, and the
// mode of anything but a directory is not changed.
func setMode(name string, mode fs.FileMode) error {
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.IsDir() {
		return notDirectory(name)
	}
	return file.Chmod(mode)
}

func notDirectory(name string) error {
	return fmt.Errorf("%s is not a directory (%w)", name, fs.ErrInvalid)
}

// read waits for a byte and reads one.
func (p *pipe) read(patience time.Duration) (int, error) {
	if err := p.file.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	return p.file.Read(make([]byte, 1))
}

// rest reads all data in the pipe, without waiting.
func (p *pipe) rest() (n int) {
	raw, err := p.file.SyscallConn()
	if err != nil || p.file.SetReadDeadline(time.Time{}) != nil {
		return 0
	}
	_ = raw.Read(func(fd uintptr) bool {
		for buffer := make([]byte, 512); ; { // there may be much data if this process was stopped for a long time
			some, err := syscall.Read(int(fd), buffer)
			if err != nil || some == 0 {
				return true
			}
			n += some
		}
	})
	return n
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// isThere reports whether the pipe's name still belongs to this pipe.
func (p *pipe) isThere() bool {
	info, err := os.Lstat(p.name)
	return err == nil && os.SameFile(info, p.info)
}

// close may be called while another goroutine reads, and ends the read.
func (p *pipe) close() { _ = p.file.Close() }

// writePipe writes to a pipe, if a process has it open, without waiting. It reports whether no process has it open.
func writePipe(name string, data []byte) (unused bool) {
	fd, err := syscall.Open(name, syscall.O_WRONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return errors.Is(err, syscall.ENXIO)
	}
	defer syscall.Close(fd)
	var info syscall.Stat_t
	if err := syscall.Fstat(fd, &info); err == nil && info.Mode&syscall.S_IFMT == syscall.S_IFIFO {
		_, _ = syscall.Write(fd, data) // a full pipe already wakes enough consumers
	}
	return false
}

// openOwnPipe opens a pipe that only this process reads. The pipe gets its name after it was opened, because a sender removes a pipe
// under that name that no process has open.
func openOwnPipe(name, database string) (*pipe, error) {
	folder, file := filepath.Split(name)
	hidden := filepath.Join(folder, "."+file)
	p, err := openPipe(hidden, database)
	if err != nil {
		_ = os.Remove(hidden) // it may have been created and not opened
		return nil, err
	}
	if err := os.Rename(p.name, name); err != nil {
		p.remove()
		return nil, err
	}
	p.name = name
	return p, nil
}

// remove closes an own pipe and removes its name.
func (p *pipe) remove() {
	_ = os.Remove(p.name)
	p.close()
}

// removeUnused removes an own pipe that no process has open, because its reader has died.
func removeUnused(name string) {
	if info, err := os.Lstat(name); err == nil && info.Mode().Type() == fs.ModeNamedPipe {
		_ = os.Remove(name)
	}
}

// readAll waits for data, and reads as much as fits in the buffer.
func (p *pipe) readAll(buffer []byte, patience time.Duration) (int, error) {
	if err := p.file.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	return p.file.Read(buffer)
}
