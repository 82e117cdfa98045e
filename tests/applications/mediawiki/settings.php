<?php
// What is not as the installation has it.

if ( getenv( "CHANGED" ) ) {
	// How many recent changes one can choose to see.
	$wgRCLinkLimits = [ 20, 30 ];
}
