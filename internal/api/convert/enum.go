package convert

func Map[A, B any](in []A, f func(A) B) []B {
	out := make([]B, len(in))
	for i, a := range in {
		out[i] = f(a)
	}
	return out
}

// pair is one name of an enum on both sides.
type pair[P ~int32, M ~uint8] struct {
	api   P
	model M
}

// Enum translates both ways. Of several pairs with the same value the first
// counts. Values without a pair become unknown, which the model refuses, and the
// API's unspecified.
type Enum[P ~int32, M ~uint8] []pair[P, M]

const Unknown = 255

func (e Enum[P, M]) FromPB(p P) M {
	for _, row := range e {
		if row.api == p {
			return row.model
		}
	}
	return Unknown
}

func (e Enum[P, M]) ToPB(m M) P {
	for _, row := range e {
		if row.model == m && row.api != 0 {
			return row.api
		}
	}
	return 0
}
