"""GitHub's JSON of accounts and repositories, with all the links that make real payloads as large as they are."""

from __future__ import annotations

import zlib
from typing import Any

API = "https://api.github.com"
SITE = "https://github.com"

_USER_LINKS = ("followers", "subscriptions", "orgs", "repos", "received_events")
_USER_TEMPLATES = {
    "following_url": "following{/other_user}",
    "gists_url": "gists{/gist_id}",
    "starred_url": "starred{/owner}{/repo}",
    "events_url": "events{/privacy}",
}
_REPOSITORY_LINKS = {
    "forks": "forks",
    "keys": "keys{/key_id}",
    "collaborators": "collaborators{/collaborator}",
    "teams": "teams",
    "hooks": "hooks",
    "issue_events": "issues/events{/number}",
    "events": "events",
    "assignees": "assignees{/user}",
    "branches": "branches{/branch}",
    "tags": "tags",
    "blobs": "git/blobs{/sha}",
    "git_tags": "git/tags{/sha}",
    "git_refs": "git/refs{/sha}",
    "trees": "git/trees{/sha}",
    "statuses": "statuses/{sha}",
    "languages": "languages",
    "stargazers": "stargazers",
    "contributors": "contributors",
    "subscribers": "subscribers",
    "subscription": "subscription",
    "commits": "commits{/sha}",
    "git_commits": "git/commits{/sha}",
    "comments": "comments{/number}",
    "issue_comment": "issues/comments{/number}",
    "contents": "contents/{+path}",
    "compare": "compare/{base}...{head}",
    "merges": "merges",
    "archive": "{archive_format}{/ref}",
    "downloads": "downloads",
    "issues": "issues{/number}",
    "pulls": "pulls{/number}",
    "milestones": "milestones{/number}",
    "notifications": "notifications{?since,all,participating}",
    "labels": "labels{/name}",
    "releases": "releases{/id}",
    "deployments": "deployments",
}
_CREATED = "2019-05-15T15:19:25Z"


def number_of(name: str) -> int:
    """A stable id for an owner or a repository, whatever the case of its name."""
    return zlib.crc32(name.casefold().encode())


def account(login: str, kind: str) -> dict[str, Any]:
    """A user or an organisation as an account (`type` User, Organization or Bot)."""
    links = {f"{link.replace('orgs', 'organizations')}_url": f"{API}/users/{login}/{link}" for link in _USER_LINKS}
    return {
        "login": login,
        "id": number_of(login),
        "node_id": f"U_{number_of(login):x}",
        "avatar_url": f"https://avatars.githubusercontent.com/u/{number_of(login)}?v=4",
        "gravatar_id": "",
        "url": f"{API}/users/{login}",
        "html_url": f"{SITE}/{login}",
        **links,
        **{key: f"{API}/users/{login}/{path}" for key, path in _USER_TEMPLATES.items()},
        "type": kind,
        "user_view_type": "public",
        "site_admin": False,
    }


def repository(full_name: str, kind: str = "Organization", fork: bool = False) -> dict[str, Any]:
    owner, name = full_name.split("/", 1)
    url = f"{API}/repos/{full_name}"
    return {
        "id": number_of(full_name),
        "node_id": f"R_{number_of(full_name):x}",
        "name": name,
        "full_name": full_name,
        "private": False,
        "owner": account(owner, kind),
        "html_url": f"{SITE}/{full_name}",
        "description": None,
        "fork": fork,
        "url": url,
        **{f"{key}_url": f"{url}/{path}" for key, path in _REPOSITORY_LINKS.items()},
        "created_at": _CREATED,
        "updated_at": _CREATED,
        "pushed_at": _CREATED,
        "git_url": f"git://github.com/{full_name}.git",
        "ssh_url": f"git@github.com:{full_name}.git",
        "clone_url": f"{SITE}/{full_name}.git",
        "svn_url": f"{SITE}/{full_name}",
        "homepage": None,
        "size": 0,
        "stargazers_count": 0,
        "watchers_count": 0,
        "language": None,
        "has_issues": True,
        "has_projects": True,
        "has_downloads": True,
        "has_wiki": True,
        "has_pages": False,
        "has_discussions": False,
        "forks_count": 0,
        "mirror_url": None,
        "archived": False,
        "disabled": False,
        "open_issues_count": 0,
        "license": None,
        "allow_forking": True,
        "is_template": False,
        "web_commit_signoff_required": False,
        "topics": [],
        "visibility": "public",
        "forks": 0,
        "open_issues": 0,
        "watchers": 0,
        "default_branch": "main",
        "custom_properties": {},
    }


def organization(login: str) -> dict[str, Any]:
    """An organisation as deliveries show it."""
    url = f"{API}/orgs/{login}"
    return {
        "login": login,
        "id": number_of(login),
        "node_id": f"O_{number_of(login):x}",
        "url": url,
        **{f"{link}_url": f"{url}/{link}" for link in ("repos", "events", "hooks", "issues")},
        "members_url": f"{url}/members{{/member}}",
        "public_members_url": f"{url}/public_members{{/member}}",
        "avatar_url": f"https://avatars.githubusercontent.com/u/{number_of(login)}?v=4",
        "description": "",
    }
