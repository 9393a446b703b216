# The program of a Windows machine: installs the GitHub runner, asks for work, runs one job, shuts down.
#
# Constant text for Windows PowerShell 5.1, run once as administrator by EC2Launch or by Google's startup scripts. What
# differs between launches is JSON that the metadata service holds beside this text; nothing is interpolated into it.
# Jobs run as this program's user. Its protocol is that of linux.py; windows_hook.ps1 is the job's side of admission.
Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
[Net.ServicePointManager]::SecurityProtocol = [Net.SecurityProtocolType]::Tls12

$Folder = 'C:\autoscaler'
$Home_ = 'C:\actions-runner'
$TooOld = 7
$Nonce = [guid]::NewGuid().ToString('N')
$Log = New-Object System.Collections.Generic.Queue[string]

function Get-Launch {
    # EC2: our part of the user data, by IMDSv2. Google: an attribute of the instance.
    try {
        $ttl = @{ 'X-aws-ec2-metadata-token-ttl-seconds' = '300' }
        $token = Invoke-RestMethod -Method Put -Uri 'http://169.254.169.254/latest/api/token' -Headers $ttl -TimeoutSec 5
        $text = Invoke-RestMethod -Uri 'http://169.254.169.254/latest/user-data' -Headers @{ 'X-aws-ec2-metadata-token' = $token } -TimeoutSec 10
        $packed = [regex]::Match($text, '<autoscaler>([A-Za-z0-9+/=]+)</autoscaler>').Groups[1].Value
    } catch {
        $uri = 'http://metadata.google.internal/computeMetadata/v1/instance/attributes/autoscaler'
        $packed = Invoke-RestMethod -Uri $uri -Headers @{ 'Metadata-Flavor' = 'Google' } -TimeoutSec 10
    }
    $stream = New-Object IO.MemoryStream (, [Convert]::FromBase64String($packed))
    $gzip = New-Object IO.Compression.GZipStream $stream, ([IO.Compression.CompressionMode]::Decompress)
    (New-Object IO.StreamReader $gzip, ([Text.Encoding]::UTF8)).ReadToEnd() | ConvertFrom-Json
}

function Invoke-Daemon($Method, $Path, $Body, $Seconds) {
    # Status and content; 0 where nobody answered.
    $headers = @{ 'Authorization' = 'Bearer ' + $Launch.boot.token; 'X-Machine-Nonce' = $Nonce }
    $uri = $Launch.boot.url.TrimEnd('/') + '/runner/v1/' + $Launch.boot.runner_id + '/' + $Path
    $options = @{ Method = $Method; Uri = $uri; Headers = $headers; TimeoutSec = $Seconds; UseBasicParsing = $true }
    if ($null -ne $Body) {
        $options.Body = [Text.Encoding]::UTF8.GetBytes((ConvertTo-Json $Body -Compress))
        $options.ContentType = 'application/json'
    }
    try {
        $answer = Invoke-WebRequest @options
        return @{ Status = [int]$answer.StatusCode; Content = $answer.Content }
    } catch [System.Net.WebException] {
        $response = $_.Exception.Response
        if ($null -eq $response) { return @{ Status = 0; Content = '' } }
        return @{ Status = [int]$response.StatusCode; Content = '' }
    }
}

function Send-Stage($Stage, $Detail, $Lines) {
    $since = [Diagnostics.Stopwatch]::StartNew()
    $tries = if ($Stage -eq 'booting') { 1 } else { 8 }
    for ($try = 0; $try -lt $tries; $try++) {
        $body = @{ stage = $Stage; detail = $Detail; log = @($Lines); age_ms = [int]$since.ElapsedMilliseconds }
        $status = (Invoke-Daemon 'Post' 'stages' $body 15).Status
        if ($status -ne 0 -and $status -lt 500) { return }
        Start-Sleep -Seconds ([Math]::Min(15, [Math]::Pow(2, $try)))
    }
}

function Write-Line($Text) {
    $line = ([string]$Text).Replace($Launch.boot.token, '[hidden]')
    if ($line.Length -gt 200) { $line = $line.Substring(0, 200) }
    $Log.Enqueue($line)
    while ($Log.Count -gt 12) { [void]$Log.Dequeue() }
    Write-Output $line | Out-Host
}

function Invoke-Hook($Name) {
    # The image's own script of that name, then the policy's.
    $scripts = @()
    $ofImage = Join-Path $Launch.plan.hooks.folder ($Name + '.ps1')
    if (Test-Path $ofImage) { $scripts += $ofImage }
    $text = $Launch.plan.hooks.$Name
    if ($text) {
        $file = Join-Path $Folder ($Name + '.ps1')
        Set-Content -Path $file -Value $text -Encoding UTF8
        $scripts += $file
    }
    foreach ($script in $scripts) {
        Send-Stage 'booting' ('runs ' + $Name) @()
        & powershell.exe -NoProfile -ExecutionPolicy Bypass -File $script 2>&1 | ForEach-Object { Write-Line $_ }
        if ($LASTEXITCODE -ne 0) { throw ('the ' + $Name + ' hook ended with ' + $LASTEXITCODE) }
    }
}

function Install-Runner {
    # From the image's cache or its URL, used only with the SHA-256 of the policy.
    $runner = $Launch.plan.runner
    Invoke-Hook 'pre_install'
    $archive = Join-Path $Launch.plan.cache ([IO.Path]::GetFileName($runner.url))
    if (-not ((Test-Path $archive) -and (Get-FileHash $archive -Algorithm SHA256).Hash -eq $runner.sha256)) {
        Send-Stage 'booting' 'downloads the runner' @()
        $archive = Join-Path $Folder 'runner.zip'
        Invoke-WebRequest -Uri $runner.url -OutFile $archive -UseBasicParsing -TimeoutSec 600
        if ((Get-FileHash $archive -Algorithm SHA256).Hash -ne $runner.sha256) {
            throw ($runner.url + ' does not have the SHA-256 ' + $runner.sha256 + ' of the policy')
        }
    }
    Send-Stage 'booting' 'unpacks the runner' @()
    Add-Type -AssemblyName System.IO.Compression.FileSystem
    [IO.Compression.ZipFile]::ExtractToDirectory($archive, $Home_)
    Invoke-Hook 'post_install'
}

function Wait-Config {
    # The JIT config, as soon as a pool wants this machine; nothing when it is to go.
    if ($Launch.boot.PSObject.Properties['jit']) { return $Launch.boot.jit }
    while ($true) {
        $answer = Invoke-Daemon 'Get' 'jit?wait=25' $null 60
        if ($answer.Status -eq 200) { return ($answer.Content | ConvertFrom-Json).jit }
        if ($answer.Status -eq 410) { return '' }
        Start-Sleep -Milliseconds (Get-Random -Minimum 250 -Maximum 3000)
    }
}

function Stop-Tree($Root) {
    # Every process below the runner, found again until none is left.
    for ($round = 0; $round -lt 50; $round++) {
        $all = @(Get-CimInstance Win32_Process)
        $doomed = @($Root)
        do {
            $count = $doomed.Count
            foreach ($each in $all) {
                if ($doomed -contains $each.ParentProcessId -and $doomed -notcontains $each.ProcessId) { $doomed += $each.ProcessId }
            }
        } while ($doomed.Count -gt $count)
        $alive = @($all | Where-Object { $doomed -contains $_.ProcessId })
        if ($alive.Count -eq 0) { return }
        foreach ($each in $alive) { Stop-Process -Id $each.ProcessId -Force -ErrorAction SilentlyContinue }
        Start-Sleep -Milliseconds 100
    }
}

function Invoke-Runner($Jit) {
    # One job. The JIT config goes in by the environment alone. A job that is not let in is ended with everything below.
    $start = New-Object Diagnostics.ProcessStartInfo
    $start.FileName = Join-Path $Home_ 'run.cmd'
    $start.WorkingDirectory = $Home_
    $start.UseShellExecute = $false
    $start.RedirectStandardOutput = $true
    $start.EnvironmentVariables['ACTIONS_RUNNER_INPUT_JITCONFIG'] = $Jit
    $start.EnvironmentVariables['ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE'] = '1'
    $start.EnvironmentVariables['ACTIONS_RUNNER_HOOK_JOB_STARTED'] = Join-Path $Folder 'started.ps1'
    $start.EnvironmentVariables['ACTIONS_RUNNER_HOOK_JOB_COMPLETED'] = Join-Path $Folder 'finished.ps1'
    $process = [Diagnostics.Process]::Start($start)
    $registered = $false
    $said = @{}
    $reading = $process.StandardOutput.ReadLineAsync()
    while (-not $process.HasExited) {
        while ($null -ne $reading -and $reading.Wait(200)) {
            $line = $reading.Result
            $reading = if ($null -eq $line) { $null } else { $process.StandardOutput.ReadLineAsync() }
            if ($null -ne $line) { Write-Line $line }
            if (-not $registered -and $line -match 'Listening for Jobs') {
                $registered = $true
                Send-Stage 'registered' '' @()
            }
        }
        if ($null -eq $reading) { Start-Sleep -Milliseconds 200 }
        foreach ($stage in 'started', 'finished', 'refused') {
            $file = Join-Path $Folder ($stage + '.txt')
            if ((Test-Path $file) -and -not $said.ContainsKey($stage)) {
                $said[$stage] = $true
                Send-Stage $stage ((Get-Content $file -Raw).Trim()) @()
            }
        }
        if ($said.ContainsKey('refused')) { Stop-Tree $process.Id }
        if (-not $said.ContainsKey('started') -and (Test-Path (Join-Path $Folder 'hook.pid'))) {
            $hook = [int](Get-Content (Join-Path $Folder 'hook.pid'))
            $gone = $null -eq (Get-Process -Id $hook -ErrorAction SilentlyContinue)
            if ($gone -and -not (Test-Path (Join-Path $Folder 'started.txt'))) { Stop-Tree $process.Id }
        }
    }
    @{ Code = $process.ExitCode; Registered = $registered; Root = $process.Id }
}

function Start-Work {
    Send-Stage 'booting' 'starts' @()
    Install-Runner
    foreach ($address in $Launch.plan.unreachable) {
        New-NetFirewallRule -DisplayName 'autoscaler' -Direction Outbound -RemoteAddress $address -Action Block | Out-Null
    }
    Send-Stage 'booted' '' @()
    $jit = Wait-Config
    if (-not $jit) { Send-Stage 'exited' 'told to go' @(); return }
    $end = Invoke-Runner $jit
    if ($end.Code -eq $TooOld) {
        $setting = 'providers.' + $Launch.boot.place.provider + '.settings.runner.version'
        Send-Stage 'too_old' ('GitHub refuses runner ' + $Launch.plan.runner.version + ' as too old: raise ' + $setting + ' and its sha256') $Log
    } elseif (-not $end.Registered) {
        Send-Stage 'failed' ('the runner never registered: ' + ($Log -join ' | ')) $Log
    }
    Stop-Tree $end.Root
    Send-Stage 'exited' ('run.cmd ended with ' + $end.Code) @()
}

if (Test-Path $Folder) { return }  # once a machine
$Launch = Get-Launch
New-Item -ItemType Directory -Path $Folder | Out-Null
& shutdown.exe /s /f /t ([int]$Launch.plan.lifetime_seconds)  # holds even if this program ends
Set-Content -Path (Join-Path $Folder 'job.json') -Value (ConvertTo-Json $Launch.job -Depth 5) -Encoding UTF8
foreach ($name in 'started', 'finished') {
    Set-Content -Path (Join-Path $Folder ($name + '.ps1')) -Value $Launch.hook -Encoding UTF8
}
try {
    Start-Work
} catch {
    Write-Line $_
    Send-Stage 'failed' ([string]$_) $Log
} finally {
    & shutdown.exe /a
    & shutdown.exe /s /f /t 0
}
