package text

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"unicode/utf8"
)

// Marshal is json.Marshal, except that it refuses strings that are not UTF-8, in which encoding/json replaces bytes by U+FFFD. It examines
// v only if the JSON has that character, or is not UTF-8. Other values cost three scans of their JSON, and no allocation.
func Marshal(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	valid := utf8.Valid(data)
	if err != nil || valid && !bytes.Contains(data, []byte(`\ufffd`)) && !bytes.Contains(data, []byte("\ufffd")) {
		return data, err
	}
	if path, found := invalid(reflect.ValueOf(v), map[reflect.Value]bool{}); found || !valid {
		return nil, fmt.Errorf("%T%s is not UTF-8, and JSON would change it: use a []byte, or convert it to UTF-8", v, path)
	}
	return data, nil
}

// invalid returns the path of a string in v that is not UTF-8. It also looks in unexported fields, which a MarshalJSON may use, so it
// might meet pointers again: seen has what they point to.
func invalid(v reflect.Value, seen map[reflect.Value]bool) (path string, found bool) {
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
		if v.Type().Elem().Kind() == reflect.Uint8 && v.Kind() != reflect.Map {
			return "", false
		}
		for k, x := range v.Seq2() {
			if path, found = invalid(x, seen); !found {
				path, found = invalid(k, seen)
			}
			if found {
				return fmt.Sprintf("[%v]%s", k, path), true
			}
		}
	}
	return "", false
}
