package guard

import "github.com/fermata-io/fermata/internal/core/authz"

// MethodPermission is what a method asks of its caller, for programs that show people what they may do. Nodes decide
// by the same table.
type MethodPermission struct {
	Permission authz.Permission
	// AllNamespaces: a role in some namespaces is not enough.
	AllNamespaces bool
}

// PermissionOfMethod returns the permission of a method by its full name, /package.Service/Method; ok: there is such a
// method.
func PermissionOfMethod(fullMethod string) (p MethodPermission, ok bool) {
	row, ok := methodPermissions[fullMethod]
	if !ok {
		return MethodPermission{}, false
	}
	isGlobal := row.namespaceOf == nil && row.permission != authz.Anyone && row.permission != authz.AnyRole
	return MethodPermission{Permission: row.permission, AllNamespaces: isGlobal}, true
}
