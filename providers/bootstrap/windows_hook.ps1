# The job's side of admission on Windows: ACTIONS_RUNNER_HOOK_JOB_STARTED and _COMPLETED, told apart by this file's name.
#
# Compares what GitHub's own environment says of the job with the type's access. A refused job gets no exit status from
# here: it prints why and waits, and the machine's program (windows.ps1) ends the whole runner meanwhile.
$ErrorActionPreference = 'Stop'
$Folder = 'C:\autoscaler'
$Stage = [IO.Path]::GetFileNameWithoutExtension($PSCommandPath)
if ($Stage -eq 'finished') {
    Set-Content -Path (Join-Path $Folder 'finished.txt') -Value ([string]$env:GITHUB_REPOSITORY)
    exit 0
}

function Test-Pattern($Patterns, $Value) {
    foreach ($pattern in @($Patterns)) { if ($Value -like $pattern) { return $true } }
    return $false
}

function Get-Refusal($Access, $Repository, $EventName, $Fork) {
    # Why this job may not run here, in words; empty when it may. Doubt refuses.
    if (-not (Test-Pattern $Access.repositories $Repository)) { return 'repository ' + $Repository + ' may not use this runner' }
    if (@($Access.events).Count -gt 0 -and -not (Test-Pattern $Access.events $EventName)) { return 'event ' + $EventName + ' may not use this runner' }
    if ($Access.forks -eq 'allow') { return '' }
    if ($null -eq $Fork) { return 'cannot tell whether this run comes from a fork' }
    if ($Access.forks -eq 'only') { if ($Fork) { return '' } else { return 'only runs from forks may use this runner' } }
    if ($Fork) { return 'runs from forks may not use this runner' }
    return ''
}

function Get-Fork($Repository, $EventName) {
    # Whether the run comes from a fork, by GitHub's event payload; null when the payload does not tell.
    $payload = Get-Content -Path $env:GITHUB_EVENT_PATH -Raw -Encoding UTF8 | ConvertFrom-Json
    if (-not $payload.PSObject.Properties['pull_request']) {
        if ($EventName -like 'pull_request*') { return $null } else { return $false }
    }
    $head = $payload.pull_request.head.repo
    if ($null -eq $head) { return $true }
    return $head.full_name -ne $Repository
}

Set-Content -Path (Join-Path $Folder 'hook.pid') -Value $PID
try {
    $job = Get-Content -Path (Join-Path $Folder 'job.json') -Raw -Encoding UTF8 | ConvertFrom-Json
    $repository = [string]$env:GITHUB_REPOSITORY
    $eventName = [string]$env:GITHUB_EVENT_NAME
    $why = Get-Refusal $job.access $repository $eventName (Get-Fork $repository $eventName)
    if (-not $why -and $job.notice) { $why = 'it waited longer than the deadline' }
} catch {
    $why = 'its access cannot be checked (' + $_ + ')'
}
$detail = $repository + ' run ' + $env:GITHUB_RUN_ID + ' (' + $eventName + ')'
if ($why) {
    Write-Output ('autoscaler refused this job: ' + $why)
    Set-Content -Path (Join-Path $Folder 'refused.txt') -Value ($detail + ': ' + $why)
    while ($true) { Start-Sleep -Seconds 1 }
}
Set-Content -Path (Join-Path $Folder 'started.txt') -Value $detail
if ($job.line) { Write-Output $job.line }
exit 0
