package chanqcodec

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/chanq/chanq"
)

// Keys are the keys of Seal. To change the key, add one to Secrets and deploy all programs. Then make it Current. Remove
// the old one when no message that it has encrypted is left: also no dead or done one.
type Keys struct {
	// Current is the ID of the key that encrypts. It must be in Secrets. The ID is stored in each body, readable. Range: 1
	// to 100 bytes.
	Current string
	// Secrets are the keys by their IDs. A key is 32 random bytes, for example from your secret store. Use one for at most
	// 4 billion bodies (2^32), the limit of its random nonces.
	Secrets map[string][]byte
}

const (
	keyBytes = 32
	mostID   = 100
)

// Seal returns a codec that encrypts bodies with AES-256-GCM. Each costs 33 bytes and the key's ID. inner: default
// chanq.JSON. The error names what is wrong with the keys.
//
// A body that was encrypted with a key that this program lacks is dead-lettered with CauseUndecodable, and the error
// names the key: add it, and redrive. Seal keeps bodies secret. It does not prove who has sent one: bodies that are not
// encrypted are read as well, and a role that can write to the table can exchange two bodies.
func Seal(inner chanq.Codec, keys Keys) (chanq.Codec, error) {
	c := &sealCodec{inner: orJSON(inner), current: keys.Current, keys: map[string]cipher.AEAD{}}
	var wrong []error
	for _, id := range slices.Sorted(maps.Keys(keys.Secrets)) {
		switch secret := keys.Secrets[id]; {
		case id == "" || len(id) > mostID:
			wrong = append(wrong, fmt.Errorf("Keys.Secrets: the ID %q: must be 1 to %d bytes", id, mostID))
		case len(secret) != keyBytes:
			wrong = append(wrong, fmt.Errorf("Keys.Secrets: the key %q is %d bytes: must be %d", id, len(secret), keyBytes))
		default:
			block, err := aes.NewCipher(secret)
			if err == nil {
				c.keys[id], err = cipher.NewGCMWithRandomNonce(block)
			}
			wrong = append(wrong, err)
		}
	}
	if _, has := keys.Secrets[keys.Current]; !has {
		wrong = append(wrong, fmt.Errorf("Keys.Current is %q: must be one of Keys.Secrets", keys.Current))
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, fmt.Errorf("chanqcodec: seal: %w", err)
	}
	return c, nil
}

type sealCodec struct {
	inner   chanq.Codec
	current string
	keys    map[string]cipher.AEAD
}

// A sealed body: the marker, the length of the key's ID, the ID, and what the cipher makes of the plain body: its nonce,
// the text, the tag. What is before the nonce is authenticated.

func (c *sealCodec) Encode(body any) ([]byte, error) {
	plain, err := c.inner.Encode(body)
	if err != nil {
		return nil, err
	}
	key := c.keys[c.current]
	head := make([]byte, 0, len(sealMarker)+1+len(c.current)+len(plain)+key.Overhead())
	head = append(head, sealMarker...)
	head = append(head, byte(len(c.current)))
	head = append(head, c.current...)
	return key.Seal(head, nil, plain, head), nil
}

func (c *sealCodec) Decode(data []byte, body any) error {
	sealed, is := bytes.CutPrefix(data, []byte(sealMarker))
	if !is {
		return c.inner.Decode(data, body)
	}
	if len(sealed) == 0 || len(sealed) <= int(sealed[0]) {
		return errors.New("the body is encrypted, and was cut")
	}
	n := 1 + int(sealed[0])
	id, sealed := string(sealed[1:n]), sealed[n:]
	key := c.keys[id]
	if key == nil {
		return fmt.Errorf("the body is encrypted with the key %q, which this program lacks: add it to Keys.Secrets, and redrive", id)
	}
	plain, err := key.Open(nil, nil, sealed, data[:len(data)-len(sealed)])
	if err != nil {
		return fmt.Errorf("the body is encrypted with the key %q: this program has another key of this ID, or the body was cut or changed", id)
	}
	return c.inner.Decode(plain, body)
}
