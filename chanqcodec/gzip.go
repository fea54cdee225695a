package chanqcodec

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"sync"

	"github.com/chanq/chanq"
)

// MaxBody is the most bytes of a body before Gzip compresses it, 32 MiB: the highest Spec.MaxBody. Spec.MaxBody itself
// limits the compressed body. A larger body is chanq.ErrTooLarge when it is sent, and when it is read: a small body of
// another program cannot fill your memory.
const MaxBody = 32 << 20

// Gzip returns a codec that compresses bodies of at least least bytes. Shorter ones, and those that do not get shorter,
// are stored as inner encodes them. inner: default chanq.JSON.
//
// It costs some 50 µs per KiB to compress, and 30 µs to decompress (go test ./chanqcodec -bench .).
func Gzip(inner chanq.Codec, least int) chanq.Codec {
	return &gzipCodec{inner: orJSON(inner), least: least}
}

type gzipCodec struct {
	inner   chanq.Codec
	least   int
	writers sync.Pool // *gzip.Writer, of 800 KiB
	readers sync.Pool // *gzip.Reader
}

func (c *gzipCodec) Encode(body any) ([]byte, error) {
	data, err := c.inner.Encode(body)
	if err != nil {
		return nil, err
	}
	if len(data) > MaxBody {
		return nil, fmt.Errorf("%w: before its compression the body is %d bytes: must be at most %d", chanq.ErrTooLarge,
			len(data), MaxBody)
	}
	marked := bytes.HasPrefix(data, []byte(gzipMarker)) // by inner: Decode must find it compressed
	if len(data) < c.least && !marked {
		return data, nil
	}
	out := bytes.NewBuffer(append(make([]byte, 0, len(data)/2), gzipMarker...))
	w, _ := c.writers.Get().(*gzip.Writer)
	if w == nil {
		w = gzip.NewWriter(out)
	}
	defer c.writers.Put(w)
	w.Reset(out)
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if out.Len() >= len(data) && !marked {
		return data, nil
	}
	return out.Bytes(), nil
}

func (c *gzipCodec) Decode(data []byte, body any) error {
	packed, is := bytes.CutPrefix(data, []byte(gzipMarker))
	if !is {
		return c.inner.Decode(data, body)
	}
	plain, err := c.unpack(packed)
	if err != nil {
		return err
	}
	return c.inner.Decode(plain, body)
}

// unpack returns at most MaxBody bytes.
func (c *gzipCodec) unpack(packed []byte) ([]byte, error) {
	r, _ := c.readers.Get().(*gzip.Reader)
	if r == nil {
		r = new(gzip.Reader)
	}
	defer c.readers.Put(r)
	err := r.Reset(bytes.NewReader(packed))
	var plain []byte
	if err == nil {
		plain, err = io.ReadAll(io.LimitReader(r, MaxBody+1))
	}
	if len(plain) > MaxBody {
		return nil, fmt.Errorf("%w: the body is compressed, and has more than %d bytes", chanq.ErrTooLarge, MaxBody)
	}
	if err != nil {
		return nil, fmt.Errorf("the body is compressed, and was cut or changed: %w", err)
	}
	return plain, nil
}
