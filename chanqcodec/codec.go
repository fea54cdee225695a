// Package chanqcodec has codecs that compress and encrypt bodies, for Config.Codec and for Kind.With of chanqjobs:
//
//	sealed, err := chanqcodec.Seal(chanqcodec.Gzip(chanq.JSON, 1024), chanqcodec.Keys{
//		Current: "2026", Secrets: map[string][]byte{"2026": key},
//	})
//	check(err)
//	cfg := chanq.Config{Codec: sealed}
//
// Compress first, as here: an encrypted body does not get shorter.
//
// Both read bodies that they have not written: such a body is passed to the inner codec. So you can switch them on
// while messages are in the queue. Programs that receive must be able to read them first: see Pair.
//
// Headers, types, keys, errors, progress and saved states stay readable. Bodies of type []byte, string and json.RawMessage bypass every codec: to
// encrypt them, put them into a struct.
package chanqcodec

import (
	"github.com/chanq/chanq"
)

// A body that a codec of this package has written begins with one of these markers. Neither JSON nor other text in UTF-8
// or UTF-16 begins so. The last byte is the version of the form.
const (
	gzipMarker = "\x8ccz1"
	sealMarker = "\x8ccs1"
)

// Pair returns a codec that encodes with one codec and decodes with another. Use it for the first of the two deployments
// that switch on Gzip or Seal: every program can then read the new bodies, and none writes them yet.
//
//	chanq.Config{Codec: chanqcodec.Pair(chanq.JSON, sealed)} // first
//	chanq.Config{Codec: sealed}                              // when no older program runs
func Pair(encode, decode chanq.Codec) chanq.Codec { return pair{orJSON(encode), orJSON(decode)} }

type pair struct{ encode, decode chanq.Codec }

func (p pair) Encode(body any) ([]byte, error)    { return p.encode.Encode(body) }
func (p pair) Decode(data []byte, body any) error { return p.decode.Decode(data, body) }

func orJSON(c chanq.Codec) chanq.Codec {
	if c == nil {
		return chanq.JSON
	}
	return c
}
