package text

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"unicode/utf8"
)

// Marshal is json.Marshal, except that it refuses strings that are not UTF-8, in which encoding/json replaces bytes by
// U+FFFD. It examines v only if the JSON has that character, or is not UTF-8. Other values cost three scans of their
// JSON, and no allocation.
func Marshal(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	valid := utf8.Valid(data)
	if err != nil || valid && !replaced(data) {
		return data, err
	}
	if path, found := invalid(reflect.ValueOf(v), map[reflect.Value]bool{}); found || !valid {
		return nil, fmt.Errorf("%T%s is not UTF-8, and JSON would change it: convert it, for example to Base64 as "+
			"JSON does with a []byte", v, path)
	}
	return data, nil
}

// invalid returns the path of a string in v that is not UTF-8. It also looks in unexported fields, which a MarshalJSON
// may use, so it might meet pointers again: seen has what they point to.
func invalid(v reflect.Value, seen map[reflect.Value]bool) (path string, found bool) {
	if notUTF8, decided := byItself(v); decided {
		return "", notUTF8
	}
	switch v.Kind() {
	case reflect.String:
		return "", !utf8.ValidString(v.String())
	case reflect.Pointer, reflect.Interface:
		if e := v.Elem(); !seen[e] {
			seen[e] = true
			return invalid(e, seen)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if path, found = invalid(v.Field(i), seen); found && f.Tag.Get("json") != "-" {
				return "." + f.Name + path, true
			}
		}
	case reflect.Map, reflect.Slice, reflect.Array:
		return invalidItem(v, seen)
	}
	return "", false
}

func invalidItem(v reflect.Value, seen map[reflect.Value]bool) (path string, found bool) {
	if v.Type().Elem().Kind() == reflect.Uint8 && v.Kind() != reflect.Map {
		// JSON has them as Base64, unless their type encodes them itself.
		own := v.Type().Implements(reflect.TypeFor[json.Marshaler]())
		return "", own && v.Kind() == reflect.Slice && !utf8.Valid(v.Bytes())
	}
	for k, x := range v.Seq2() {
		if path, found = invalid(x, seen); !found {
			path, found = invalid(k, seen)
		}
		if found {
			return fmt.Sprintf("[%v]%s", k, path), true
		}
	}
	return "", false
}

// byItself reports whether v has a method that encodes it, and decides there: by the text that it returns, or because
// its JSON has no replacement for a byte.
func byItself(v reflect.Value) (notUTF8, decided bool) {
	if v.CanAddr() {
		v = v.Addr()
	}
	if !v.IsValid() || !v.CanInterface() || v.Kind() == reflect.Pointer && v.IsNil() {
		return false, false
	}
	switch m := v.Interface().(type) {
	case json.Marshaler:
		data, err := m.MarshalJSON()
		return false, err == nil && !replaced(data)
	case encoding.TextMarshaler:
		text, err := m.MarshalText()
		return !utf8.Valid(text), err == nil
	}
	return false, false
}

// replaced reports whether JSON has the character that encoding/json puts in place of a byte that is not UTF-8.
func replaced(data []byte) bool {
	return bytes.Contains(data, []byte(`\ufffd`)) || bytes.Contains(data, []byte("\ufffd"))
}
