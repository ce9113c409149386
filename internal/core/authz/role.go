package authz

import "fmt"

// Permission is one thing that can be allowed.
type Permission uint8

// Permissions. All but ReadCluster, AdministerCluster and Relay are checked for a namespace.
const (
	// Anyone: every authenticated caller.
	Anyone Permission = iota
	// ReadJobs: see jobs, runs, dead letters, payloads and limits of queues.
	ReadJobs
	// OperateJobs: pause, resume, run, cancel, hint, backfill, redrive.
	OperateJobs
	// EditJobs: create, update, delete.
	EditJobs
	// Work: take attempts from queues, with their payloads, and report results.
	Work
	// AdministerJobs: set limits of queues, export and restore jobs with their
	// states.
	AdministerJobs
	// ReadCluster: see nodes, shards and workers; checked for [AllNamespaces].
	ReadCluster
	// AdministerCluster: audit and repair shards; checked for [AllNamespaces].
	AdministerCluster
	// Relay: act as a node towards other nodes; checked for [AllNamespaces].
	Relay
	// AnyRole: whoever has a role, in whichever namespace.
	AnyRole
	// ReadQueues: see how much there is to do in queues, and nothing of the jobs.
	ReadQueues
	permissionCount
)

var permissionNames = [permissionCount]string{
	Anyone: "anyone", ReadJobs: "read jobs", OperateJobs: "operate jobs", EditJobs: "edit jobs", Work: "work",
	AdministerJobs: "administer jobs", ReadCluster: "read cluster", AdministerCluster: "administer cluster",
	Relay:      "relay",
	ReadQueues: "read queues", AnyRole: "any role",
}

func (p Permission) String() string {
	if p < permissionCount {
		return permissionNames[p]
	}
	return fmt.Sprintf("permission %d", uint8(p))
}

// Role is a set of permissions with a name.
type Role string

// Roles. Each of the first three includes the one before it.
const (
	Viewer   Role = "viewer"
	Operator Role = "operator"
	Editor   Role = "editor"
	Worker   Role = "worker"
	Admin    Role = "admin"
	Node     Role = "node"
	Scaler   Role = "scaler"
)

// rolePermissions lists the permissions of each role. Workers and nodes have no others, because their
// credentials are stored on many machines. Those of an autoscaler are stored in a system of another operator.
var rolePermissions = map[Role][]Permission{
	Viewer:   {ReadJobs, ReadQueues, ReadCluster},
	Operator: {ReadJobs, ReadQueues, ReadCluster, OperateJobs},
	Editor:   {ReadJobs, ReadQueues, ReadCluster, OperateJobs, EditJobs},
	Worker:   {Work},
	Admin:    {ReadJobs, ReadQueues, ReadCluster, OperateJobs, EditJobs, AdministerJobs, AdministerCluster},
	Node:     {Relay},
	Scaler:   {ReadQueues},
}

// Roles lists all roles, the weaker ones of people first.
func Roles() []Role { return []Role{Viewer, Operator, Editor, Admin, Worker, Node, Scaler} }

// Valid reports whether the role exists.
func (r Role) Valid() bool { return rolePermissions[r] != nil }

// Has reports whether the role includes a permission.
func (r Role) Has(p Permission) bool {
	if p == Anyone || p == AnyRole {
		return r.Valid()
	}
	for _, q := range rolePermissions[r] {
		if p == q {
			return true
		}
	}
	return false
}
